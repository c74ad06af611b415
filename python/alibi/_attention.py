"""Attention with linear biases on NumPy arrays and PyTorch tensors."""
from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, Optional

import numpy as np

from ._library import UsageError, lib, structs
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
) -> Any:
    """Causal attention with the bias -slopes[h] * distance, in flash-attn's layout.

    q: [batch, queries, heads, width]; k, v: [batch, keys, kv_heads, width], where kv_heads divides
    heads. Queries are at the last positions of the keys. slopes: [heads], or None for no bias;
    flash-attn's name alibi_slopes is accepted too. eps: keys that together provably have less than
    this share of a query's weight are skipped; 0 computes every pair. window: a query sees so many
    keys at most, its own included; 0: all.

    NumPy arrays give an array, PyTorch tensors a tensor, with gradients of q, k, v and slopes if
    queries == keys. On the CPU it is computed in fp32 and returned in the type of q. Tensors on a
    GPU are read and written where they are, on PyTorch's current stream. They must be bf16, which
    runs on the tensor cores, or fp32.
    """
    if not causal:
        raise UsageError("causal=False: the library has causal attention only")
    if slopes is not None and alibi_slopes is not None:
        raise UsageError("slopes and alibi_slopes are the same; give one of them")
    slopes = alibi_slopes if slopes is None else slopes
    torch = sys.modules.get("torch")  # a tensor exists only where PyTorch is imported
    if torch is not None and isinstance(q, torch.Tensor):
        return _torch_function().apply(q, k, v, slopes, eps, softmax_scale, window)
    call = _Call(_Host(), q, k, v, slopes, softmax_scale, window)
    return call.forward(eps)[0].astype(np.asarray(q).dtype, copy=False)


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
    contiguous = staticmethod(np.ascontiguousarray)

    def empty(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.empty(shape, np.float32)

    empty_sums = empty

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
        self.like = tensor.detach()
        self.device = _device("cuda", precision, tensor.device.index)
        self.stream = torch.cuda.current_stream(tensor.device).cuda_stream

    def take(self, operand: Any) -> Any:
        kind = getattr(operand, "device", "the CPU"), getattr(operand, "dtype", type(operand))
        if kind != (self.like.device, self.like.dtype):
            raise UsageError(f"q is {self.like.dtype} on '{self.like.device}', and another operand "
                             f"{kind[1]} on '{kind[0]}': all must be alike")
        return operand.detach()

    def sums(self, operand: Any) -> Any:
        import torch

        if isinstance(operand, torch.Tensor):
            operand = operand.detach()
        return torch.as_tensor(operand, dtype=torch.float32, device=self.like.device)

    def contiguous(self, tensor: Any) -> Any:
        return tensor.contiguous()

    def empty(self, shape: tuple[int, ...]) -> Any:
        return self.like.new_empty(shape)

    def empty_sums(self, shape: tuple[int, ...]) -> Any:
        import torch

        return self.like.new_empty(shape, dtype=torch.float32)

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

    def __init__(self, memory: Any, q: Any, k: Any, v: Any, slopes: Any, scale: Optional[float],
                 window: int) -> None:
        q, k, v = memory.take(q), memory.take(k), memory.take(v)
        slopes = None if slopes is None else memory.contiguous(memory.sums(slopes))
        if q.ndim != 4 or k.ndim != 4 or k.shape != v.shape:
            raise UsageError(f"q must be [B, L, H, D], and k and v alike, not {tuple(q.shape)}, "
                             f"{tuple(k.shape)} and {tuple(v.shape)}")
        if k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
            raise UsageError(f"q {tuple(q.shape)} and k {tuple(k.shape)} differ in batch or width")
        if slopes is not None and tuple(slopes.shape) != (q.shape[2],):
            raise UsageError(f"slopes must be [heads] = [{q.shape[2]}], the same for every batch, "
                             f"not {tuple(slopes.shape)}")
        if scale is not None and not scale:
            raise UsageError("softmax_scale must not be 0")
        self.memory, self.held, self.shapes = memory, [], (q.shape, k.shape, v.shape)
        batch, queries, heads, width = q.shape
        self.struct = structs["alibi_attend"](
            batch=batch, queries=queries, keys=k.shape[1], heads=heads, kv_heads=k.shape[2],
            head_width=width, scale=scale or 0.0, window=window, slopes=self._sums(slopes),
            q=self._rows(q), k=self._rows(k), v=self._rows(v), stream=memory.stream,
        )

    def _rows(self, operand: Any) -> Any:
        """As struct alibi_rows. The numbers of a row must be neighbours, and a stride of 0, as of a
        broadcast operand, would mean something else."""
        strides = self.memory.strides(operand)
        if strides[3] != 1 or min(strides) <= 0:
            operand = self.memory.contiguous(operand)
            strides = self.memory.strides(operand)
        self.held.append(operand)
        return structs["alibi_rows"](self.memory.address(operand), *strides[:3])

    def _sums(self, operand: Any) -> Any:
        if operand is None:
            return None
        self.held.append(operand)
        return ctypes.cast(self.memory.address(operand), ctypes.POINTER(ctypes.c_float))

    def forward(self, eps: float) -> tuple[Any, Any]:
        batch, queries, heads, _ = self.shapes[0]
        out = self.memory.empty(self.shapes[0])
        lse = self.memory.empty_sums((batch, heads, queries))
        self.struct.skip, self.struct.y, self.struct.lse = eps, self._rows(out), self._sums(lse)
        lib.alibi_attend(self.memory.device, ctypes.byref(self.struct))
        return out, lse

    def backward(self, out: Any, lse: Any, d_out: Any) -> list[Any]:
        """The gradients of q, k, v and slopes."""
        memory, struct = self.memory, self.struct
        gradients = [memory.empty(shape) for shape in self.shapes]
        gradients.append(memory.empty_sums((self.shapes[0][2],)) if struct.slopes else None)
        struct.y, struct.lse = self._rows(memory.take(out)), self._sums(memory.sums(lse))
        struct.dy = self._rows(memory.take(d_out))
        struct.dq, struct.dk, struct.dv = map(self._rows, gradients[:3])
        struct.dslopes = self._sums(gradients[3])
        lib.alibi_attend_backward(memory.device, ctypes.byref(struct))
        return gradients


@functools.lru_cache(maxsize=None)
def _torch_function() -> Any:
    """The autograd function, made when a tensor is first given: PyTorch may not be there."""
    import torch
    from torch.autograd.function import once_differentiable

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v, slopes, eps, scale, window):
            memory = _memory_of(q)
            call = _Call(memory, q, k, v, slopes, scale, window)
            out, lse = map(memory.tensor, call.forward(eps))
            ctx.save_for_backward(q, k, v, slopes if isinstance(slopes, torch.Tensor) else None,
                                  out, lse)
            ctx.slopes = None if isinstance(slopes, torch.Tensor) else slopes
            ctx.options = (scale, window)
            return out.to(q.dtype)

        @staticmethod
        @once_differentiable
        def backward(ctx, d_out):
            q, k, v, slopes, out, lse = ctx.saved_tensors
            slopes = ctx.slopes if slopes is None else slopes
            memory = _memory_of(q)
            call = _Call(memory, q, k, v, slopes, *ctx.options)
            gradients = call.backward(out, lse, d_out)
            given = [
                memory.tensor(gradient).to(tensor.dtype) if needed else None
                for gradient, tensor, needed in zip(
                    gradients, (q, k, v, slopes), ctx.needs_input_grad
                )
            ]
            return (*given, None, None, None)

    return Attention
