"""Attention with linear biases on NumPy arrays and PyTorch tensors, called as in flash-attn."""
from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from ._header import named
from ._library import UsageError, lib, real, structs, whole
from .model import Device


def attention(
    q: Any,
    k: Any,
    v: Any,
    slopes: Any = None,
    causal: bool = True,
    eps: float = 0.0,
    *,
    softmax_scale: Optional[float] = None,
    window: int = 0,
    alibi_slopes: Any = None,
    return_lse: bool = False,
) -> Any:
    """Causal attention with the bias -slopes[h] * distance, as flash_attn_func() computes it.

    q: [batch, queries, heads, width]; k, v: [batch, keys, kv_heads, width], where kv_heads divides
    heads. Queries are at the last positions of the keys. slopes: [heads] or [batch, heads], or None
    for no bias; flash-attn's name alibi_slopes is accepted too. eps: keys that together provably
    have less than this share of a query's weight are skipped; 0 computes every pair. window: a
    query sees at most this many keys, its own included; 0: all. return_lse: the result is (out,
    lse), lse [batch, heads, queries] being the logarithm of each query's sum of exponentials, in
    fp32.

    NumPy arrays give an array, PyTorch tensors a tensor, with gradients of q, k, v and slopes if
    queries == keys. On the CPU it is computed in fp32 and returned in the type of q. Tensors on a
    GPU are read and written where they are, on PyTorch's current stream. They must be bf16, which
    runs on the tensor cores, or fp32.
    """
    slopes = _one_of(slopes, alibi_slopes, causal)
    return _attend(q, k, v, slopes, _options(eps, softmax_scale, window), return_lse)


def attention_varlen(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    slopes: Any = None,
    causal: bool = True,
    eps: float = 0.0,
    *,
    softmax_scale: Optional[float] = None,
    window: int = 0,
    alibi_slopes: Any = None,
    return_lse: bool = False,
) -> Any:
    """attention() of sequences of different lengths, as flash_attn_varlen_func() computes it.

    q: [total_q, heads, width]; k, v: [total_k, kv_heads, width]: the sequences one after another.
    Sequence b has the queries cu_seqlens_q[b] .. cu_seqlens_q[b + 1] - 1, and its keys likewise;
    both have batch + 1 integers, from 0. max_seqlen_q, max_seqlen_k: the length of the longest. A
    slope for each sequence is slopes [batch, heads]. lse is [heads, total_q]. There are gradients
    if both have the same lengths. On a GPU every pair is computed, whatever eps allows, and wrong
    lengths are not noticed: they give wrong numbers.
    """
    slopes = _one_of(slopes, alibi_slopes, causal)
    _check_integers(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    packed = _Packed(cu_seqlens_q, cu_seqlens_k, whole("max_seqlen_q", max_seqlen_q),
                     whole("max_seqlen_k", max_seqlen_k))
    return _attend(q, k, v, slopes, _options(eps, softmax_scale, window, packed), return_lse)


def attention_with_kvcache(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    k: Any = None,
    v: Any = None,
    cache_seqlens: Union[int, Any] = None,
    cache_batch_idx: Any = None,
    slopes: Any = None,
    causal: bool = True,
    *,
    softmax_scale: Optional[float] = None,
    window: int = 0,
    alibi_slopes: Any = None,
    return_lse: bool = False,
) -> Any:
    """One token for each of several sequences, as flash_attn_with_kvcache() computes it.

    q: [batch, 1, heads, width]; k_cache, v_cache: [cache_batch, capacity, kv_heads, width]. Row b
    of the batch reads row cache_batch_idx[b] of the cache, or row b. cache_seqlens: how many keys
    each has there, an integer or [batch]. k, v: [batch, 1, kv_heads, width] are first appended to
    the cache at these places, and are part of what is read; without them the last of the
    cache_seqlens keys is the query's own. There are no gradients.
    """
    slopes = _one_of(slopes, alibi_slopes, causal)
    if cache_seqlens is None or (k is None) != (v is None):
        raise UsageError("attention_with_kvcache() needs cache_seqlens, and k and v together")
    _check_operands(q=q, k_cache=k_cache, v_cache=v_cache, k=k, v=v)
    _check_integers(cache_seqlens=cache_seqlens, cache_batch_idx=cache_batch_idx)
    torch = _torch_of(q)
    numbers: Any = np if torch is None else torch
    place = {} if torch is None else {"device": q.device}
    lengths = numbers.asarray(cache_seqlens, dtype=numbers.int32, **place)
    wrong = UsageError(f"cache_seqlens and cache_batch_idx must be [batch] = [{q.shape[0]}]")
    if tuple(lengths.shape) not in ((), (q.shape[0],)):
        raise wrong
    lengths = numbers.broadcast_to(lengths, (q.shape[0],))
    if k is not None:
        rows = numbers.arange(q.shape[0], **place) if cache_batch_idx is None else cache_batch_idx
        rows = numbers.asarray(rows, dtype=numbers.int64, **place)
        if tuple(rows.shape) != (q.shape[0],):
            raise wrong
        if torch is None or not lengths.is_cuda:  # on a GPU that would wait in every step
            _check_places(lengths, rows, k_cache.shape)
        k_cache[rows, lengths] = k[:, 0]
        v_cache[rows, lengths] = v[:, 0]
        lengths = lengths + 1
    cache = _Cache(lengths, cache_batch_idx)
    options = _options(0.0, softmax_scale, window, cache=cache)
    if torch is None:
        return _attend(q, k_cache, v_cache, slopes, options, return_lse)
    with torch.no_grad():
        return _attend(q, k_cache, v_cache, slopes, options, return_lse)


def _check_places(lengths: Any, rows: Any, cache: tuple[int, ...]) -> None:
    """Refuses places outside the cache before anything is written; NumPy takes -1 for the last."""
    if len(rows) and (rows.min() < 0 or rows.max() >= cache[0]):
        raise UsageError(f"cache_batch_idx must be 0 to {cache[0] - 1}: the cache has {cache[0]} "
                         "rows")
    if len(lengths) and (lengths.min() < 0 or lengths.max() >= cache[1]):
        raise UsageError(f"cache_seqlens must be 0 to {cache[1] - 1}: the cache has room for "
                         f"{cache[1]} keys, with those that are appended")


class _Packed(NamedTuple):
    starts_q: Any
    starts_k: Any
    longest_q: int
    longest_k: int


class _Cache(NamedTuple):
    lengths: Any
    rows: Any


class _Options(NamedTuple):
    eps: float
    scale: Optional[float]
    window: int
    packed: Optional[_Packed] = None
    cache: Optional[_Cache] = None


def _options(eps: float, scale: Optional[float], window: int, packed: Optional[_Packed] = None,
             cache: Optional[_Cache] = None) -> _Options:
    if scale is not None:
        scale = real("softmax_scale", scale, least=-(2.0**63))
    return _Options(real("eps", eps, most=1.0), scale, whole("window", window), packed, cache)


def _type_of(name: str, operand: Any) -> tuple[str, str]:
    """Its type as NumPy names it, and the kind of that: "f" for floating-point numbers, "i" for
    integers, "" for all others."""
    if _torch_of(operand) is not None:
        kind = "f" if operand.is_floating_point() else "" if operand.is_complex() else "i"
        return str(operand.dtype), "" if str(operand.dtype) == "torch.bool" else kind
    try:
        array = np.asarray(operand)
    except (TypeError, ValueError):
        raise UsageError(f"{name} is no array: {named(operand)}") from None
    if array.dtype.name.startswith(("float", "bfloat")):  # the second is of another package
        return array.dtype.name, "f"
    return array.dtype.name, "i" if array.dtype.kind in "iu" else ""


def _check_operands(slopes: Any = None, **operands: Any) -> None:
    """All are arrays of floating-point numbers, or all tensors: others would be cut to the type of
    q, or lose gradients. Slopes may be integers, and a list."""
    tensors = _torch_of(operands["q"]) is not None
    words = {False: "an array", True: "a tensor of PyTorch"}
    for name, operand in operands.items():
        if operand is None and name in ("k", "v") and "k_cache" in operands:
            continue
        if not hasattr(operand, "shape"):
            raise UsageError(f"{name} must be an array of NumPy or a tensor of PyTorch, not "
                             f"{named(operand)}")
        own = _torch_of(operand) is not None
        if own != tensors:
            raise UsageError(f"q is {words[tensors]} and {name} {words[own]}: all must be alike")
        kind = _type_of(name, operand)
        if kind[1] != "f":
            raise UsageError(f"{name} is {kind[0]}: attention takes floating-point numbers")
    if slopes is None:
        return
    if not tensors and _torch_of(slopes) is not None:
        raise UsageError("q is an array and slopes a tensor of PyTorch: all must be alike")
    kind = _type_of("slopes", slopes)
    if kind[1] == "":
        raise UsageError(f"slopes are {kind[0]}: attention takes floating-point numbers")


def _check_integers(**operands: Any) -> None:
    for name, operand in operands.items():
        if operand is None:
            continue
        kind = _type_of(name, operand)
        if kind[1] != "i":
            raise UsageError(f"{name} must be integers, not {kind[0]}")
        if getattr(operand, "is_cuda", False):
            continue  # to look would wait for the device
        array = np.asarray(operand)
        if array.size and (array.min() < -(2**31) or array.max() >= 2**31):
            raise UsageError(f"{name} must fit in 32 bits")


def _one_of(slopes: Any, alibi_slopes: Any, causal: bool) -> Any:
    if not causal:
        raise UsageError("causal=False: the library has causal attention only")
    if slopes is not None and alibi_slopes is not None:
        raise UsageError("slopes and alibi_slopes are the same; give one of them")
    return alibi_slopes if slopes is None else slopes


def _torch_of(operand: Any) -> Any:
    """PyTorch if it is one of its tensors, which exist only after PyTorch was imported."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(operand, torch.Tensor) else None


def _attend(q: Any, k: Any, v: Any, slopes: Any, options: _Options, return_lse: bool) -> Any:
    _check_operands(q=q, k=k, v=v, slopes=slopes)
    if _torch_of(q) is not None:
        out, lse = _torch_function().apply(q, k, v, slopes, options)
    else:
        out, lse = _Call(_Host(), q, k, v, slopes, options).forward()
        out = out.astype(np.asarray(q).dtype, copy=False)
    return (out, lse) if return_lse else out


# Opening a device takes memory and, on a GPU, a second: each is opened once.
_device = functools.lru_cache(maxsize=None)(Device)


class _Host:
    """Operands on the CPU: arrays of fp32."""

    stream = None

    def __init__(self) -> None:
        self.device = _device("cpu", "fp32")

    def take(self, operand: Any) -> np.ndarray:
        """An operand as the library can read it, without a copy if it can read it as it is."""
        if not isinstance(operand, np.ndarray) and hasattr(operand, "detach"):
            operand = np.from_dlpack(operand.detach().float())
        return np.asarray(operand, dtype=np.float32)

    sums = take

    def integers(self, operand: Any) -> np.ndarray:
        return np.ascontiguousarray(operand, dtype=np.int32)

    contiguous = staticmethod(np.ascontiguousarray)

    def empty(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.empty(shape, np.float32)

    empty_sums = empty

    def workspace(self, size: int) -> None:
        return None

    def strides(self, array: np.ndarray) -> list[int]:
        return [stride // array.itemsize for stride in array.strides]

    def address(self, array: np.ndarray) -> int:
        return array.ctypes.data

    def tensor(self, array: np.ndarray) -> Any:
        import torch

        return torch.from_dlpack(array)


class _Gpu:
    """Operands on a GPU: tensors of one type."""

    def __init__(self, tensor: Any) -> None:
        import torch

        precision = {torch.bfloat16: "bf16", torch.float32: "fp32"}.get(tensor.dtype)
        if precision is None:
            raise UsageError(f"a tensor on '{tensor.device}' is {tensor.dtype}: on a GPU attention "
                             "is in torch.bfloat16 or torch.float32")
        self.torch, self.like = torch, tensor.detach()
        self.device = _device("cuda", precision, tensor.device.index)
        self.stream = torch.cuda.current_stream(tensor.device).cuda_stream

    def take(self, operand: Any) -> Any:
        kind = getattr(operand, "device", "the CPU"), getattr(operand, "dtype", type(operand))
        if kind != (self.like.device, self.like.dtype):
            raise UsageError(f"q is {self.like.dtype} on '{self.like.device}', and another operand "
                             f"{kind[1]} on '{kind[0]}': all must be alike")
        return operand.detach()

    def sums(self, operand: Any) -> Any:
        if isinstance(operand, self.torch.Tensor):
            operand = operand.detach()
        return self.torch.as_tensor(operand, dtype=self.torch.float32, device=self.like.device)

    def integers(self, operand: Any) -> Any:
        return self.torch.as_tensor(operand, dtype=self.torch.int32,
                                    device=self.like.device).contiguous()

    def contiguous(self, tensor: Any) -> Any:
        return tensor.contiguous()

    def empty(self, shape: tuple[int, ...]) -> Any:
        return self.like.new_empty(shape)

    def empty_sums(self, shape: tuple[int, ...]) -> Any:
        return self.like.new_empty(shape, dtype=self.torch.float32)

    def workspace(self, size: int) -> Any:
        """PyTorch's memory: it is given back to the current stream, in which the call runs."""
        return self.like.new_empty(max(size, 1), dtype=self.torch.uint8)

    def strides(self, tensor: Any) -> list[int]:
        return list(tensor.stride())

    def address(self, tensor: Any) -> int:
        return tensor.data_ptr()

    def tensor(self, tensor: Any) -> Any:
        return tensor


def _memory_of(tensor: Any) -> Any:
    if tensor.device.type not in ("cpu", "cuda"):
        raise UsageError(f"a tensor is on '{tensor.device}': attention takes tensors of the CPU or "
                         "of an NVIDIA GPU")
    return _Gpu(tensor) if tensor.device.type == "cuda" else _Host()


class _Call:
    """A struct alibi_attend and what it points to. Every shape is checked here: the library sees
    pointers only."""

    def __init__(self, memory: Any, q: Any, k: Any, v: Any, slopes: Any,
                 options: _Options) -> None:
        q, k, v = memory.take(q), memory.take(k), memory.take(v)
        self.memory, self.held, self.shapes = memory, [], (q.shape, k.shape, v.shape)
        rank = 3 if options.packed else 4
        if q.ndim != rank or k.ndim != rank or k.shape != v.shape:
            wanted = "[total, H, D]" if options.packed else "[B, L, H, D]"
            raise UsageError(f"q must be {wanted}, and k and v alike, not {tuple(q.shape)}, "
                             f"{tuple(k.shape)} and {tuple(v.shape)}")
        if k.shape[-1] != q.shape[-1]:
            raise UsageError(f"q {tuple(q.shape)} and k {tuple(k.shape)} differ in width")
        if options.scale is not None and not options.scale:
            raise UsageError("softmax_scale must not be 0")
        self.struct = structs["alibi_attend"](
            heads=q.shape[-2], kv_heads=k.shape[-2], head_width=q.shape[-1],
            scale=options.scale or 0.0, window=options.window, skip=options.eps,
            q=self._rows(q), k=self._rows(k), v=self._rows(v), stream=memory.stream,
        )
        self._set_sizes(options)
        self.slopes_shape = None
        if slopes is not None:
            self._set_slopes(memory.contiguous(memory.sums(slopes)))

    def _set_sizes(self, options: _Options) -> None:
        struct, (q, k, _), packed, cache = self.struct, self.shapes, options.packed, options.cache
        if packed:
            starts = self._integers(packed.starts_q), self._integers(packed.starts_k)
            if starts[0].shape != starts[1].shape or starts[0].ndim != 1 or not len(starts[0]) > 1:
                raise UsageError("cu_seqlens_q and cu_seqlens_k must be [batch + 1] both, not "
                                 f"{tuple(starts[0].shape)} and {tuple(starts[1].shape)}")
            struct.batch, struct.total_q, struct.total_k = len(starts[0]) - 1, q[0], k[0]
            struct.queries, struct.keys = packed.longest_q, packed.longest_k
            struct.cu_seqlens_q, struct.cu_seqlens_k = map(self._pointer, starts)
            return
        struct.batch, struct.queries, struct.keys = q[0], q[1], k[1]
        if cache:
            struct.cache_batch = k[0]
            lengths = [self._integers(cache.lengths)]
            if cache.rows is not None:
                lengths.append(self._integers(cache.rows))
                struct.cache_batch_idx = self._pointer(lengths[1])
            elif k[0] < q[0]:
                raise UsageError(f"a batch of {q[0]} has a cache of {k[0]} rows")
            struct.cache_seqlens = self._pointer(lengths[0])
            if any(tuple(each.shape) != (q[0],) for each in lengths):
                raise UsageError(f"cache_seqlens and cache_batch_idx must be [batch] = [{q[0]}]")
        elif k[0] != q[0]:
            raise UsageError(f"q {tuple(q)} and k {tuple(k)} differ in batch")

    def _set_slopes(self, slopes: Any) -> None:
        batch, heads = self.struct.batch, self.struct.heads
        if tuple(slopes.shape) not in ((heads,), (batch, heads)):
            raise UsageError(f"slopes must be [heads] = [{heads}] or [batch, heads] = "
                             f"[{batch}, {heads}], not {tuple(slopes.shape)}")
        self.slopes_shape, self.struct.slopes = tuple(slopes.shape), self._sums(slopes)
        self.struct.batch_slopes = slopes.ndim == 2

    def _rows(self, operand: Any) -> Any:
        """As struct alibi_rows. The numbers of a row must be neighbours, and a stride of 0, as of a
        broadcast operand, would mean something else."""
        strides = self.memory.strides(operand)
        if strides[-1] != 1 or min(strides) <= 0:
            operand = self.memory.contiguous(operand)
            strides = self.memory.strides(operand)
        self.held.append(operand)
        batch = strides[0] if len(strides) == 4 else 0
        return structs["alibi_rows"](self.memory.address(operand), batch, *strides[-3:-1])

    def _sums(self, operand: Any) -> Any:
        if operand is None:
            return None
        self.held.append(operand)
        return ctypes.cast(self.memory.address(operand), ctypes.POINTER(ctypes.c_float))

    def _integers(self, operand: Any) -> Any:
        self.held.append(self.memory.integers(operand))
        return self.held[-1]

    def _pointer(self, integers: Any) -> Any:
        return ctypes.cast(self.memory.address(integers), ctypes.POINTER(ctypes.c_int32))

    def _run(self, function: Any, backward: bool) -> None:
        size = ctypes.c_size_t()
        lib.alibi_attend_workspace(self.memory.device, ctypes.byref(self.struct), backward,
                                   ctypes.byref(size))
        workspace = self.memory.workspace(size.value)
        if workspace is not None:
            self.struct.workspace = self.memory.address(workspace)
            self.struct.workspace_bytes = size.value
        function(self.memory.device, ctypes.byref(self.struct))

    def forward(self) -> tuple[Any, Any]:
        q, struct = self.shapes[0], self.struct
        out = self.memory.empty(q)
        lse = self.memory.empty_sums((q[1], q[0]) if len(q) == 3 else (q[0], q[2], q[1]))
        struct.y, struct.lse = self._rows(out), self._sums(lse)
        self._run(lib.alibi_attend, False)
        return out, lse

    def backward(self, out: Any, lse: Any, d_out: Any, of_slopes: bool) -> list[Any]:
        """The gradients of q, k, v and, if wanted, slopes."""
        memory, struct = self.memory, self.struct
        gradients = [memory.empty(shape) for shape in self.shapes]
        gradients.append(memory.empty_sums(self.slopes_shape) if of_slopes else None)
        struct.y, struct.lse = self._rows(memory.take(out)), self._sums(memory.sums(lse))
        struct.dy = self._rows(memory.take(d_out))
        struct.dq, struct.dk, struct.dv = map(self._rows, gradients[:3])
        struct.dslopes = self._sums(gradients[3])
        self._run(lib.alibi_attend_backward, True)
        return gradients


@functools.lru_cache(maxsize=None)
def _torch_function() -> Any:
    """The autograd function, made for the first tensor, because PyTorch may not be installed."""
    import torch
    from torch.autograd.function import once_differentiable

    def check_lengths(packed: Optional[_Packed]) -> None:
        """The library uses the lengths of the queries for the keys too."""
        if packed and packed.starts_q is not packed.starts_k:
            starts = (torch.as_tensor(each).cpu() for each in (packed.starts_q, packed.starts_k))
            if not torch.equal(*starts):
                raise UsageError("cu_seqlens_q and cu_seqlens_k differ: gradients need as many "
                                 "queries as keys in each sequence")

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v, slopes, options):
            memory = _memory_of(q)
            call = _Call(memory, q, k, v, slopes, options)
            out, lse = map(memory.tensor, call.forward())
            ctx.save_for_backward(q, k, v, slopes if isinstance(slopes, torch.Tensor) else None,
                                  out, lse)
            ctx.slopes = None if isinstance(slopes, torch.Tensor) else slopes
            ctx.options = options
            ctx.mark_non_differentiable(lse)
            return out.to(q.dtype), lse

        @staticmethod
        @once_differentiable
        def backward(ctx, d_out, d_lse):
            q, k, v, slopes, out, lse = ctx.saved_tensors
            slopes = ctx.slopes if slopes is None else slopes
            memory = _memory_of(q)
            check_lengths(ctx.options.packed)
            call = _Call(memory, q, k, v, slopes, ctx.options)
            gradients = call.backward(out, lse, d_out, ctx.needs_input_grad[3])
            given = [
                memory.tensor(gradient).to(tensor.dtype) if needed else None
                for gradient, tensor, needed in zip(
                    gradients, (q, k, v, slopes), ctx.needs_input_grad
                )
            ]
            return (*given, None)

    return Attention
