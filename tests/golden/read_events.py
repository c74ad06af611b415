#!/usr/bin/env python3
"""Reads the event files of a folder with TensorBoard's own reader, and prints what it would show.

    python3 tests/golden/read_events.py FOLDER     needs tensorboard

One line per curve: its tag, how many points, the first and the last step, the last value. Texts have their number of bytes as the
value. Fails if a record is damaged or a curve has a step twice or out of order.
"""
import glob
import sys

from tensorboard.backend.event_processing import event_file_loader, plugin_event_accumulator
from tensorboard.util import tensor_util

folder = sys.argv[1]
for path in glob.glob(folder + "/*tfevents*"):
    size = sum(len(event) + 16 for event in event_file_loader.RawEventFileLoader(path).Load())
    assert size == len(open(path, "rb").read()), f"{path}: {size} bytes of whole records"
shown = plugin_event_accumulator.EventAccumulator(folder, {plugin_event_accumulator.TENSORS: 0})
shown.Reload()
for tag in sorted(shown.Tags()["tensors"]):
    events = shown.Tensors(tag)
    steps = [event.step for event in events]
    value = tensor_util.make_ndarray(events[-1].tensor_proto)
    assert steps == sorted(set(steps)), f"{tag}: steps {steps}"
    value = len(value.item()) if value.dtype == object else value.item()
    print(f"{tag} {len(events)} {steps[0]} {steps[-1]} {value:.6g}")
