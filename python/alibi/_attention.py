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

    NumPy arrays give an array, PyTorch tensors on the CPU a tensor, with gradients of q, k, v and
    slopes if queries == keys. It is computed in fp32 and returned in the type of q.
    """
    if not causal:
        raise UsageError("causal=False: the library has causal attention only")
    if slopes is not None and alibi_slopes is not None:
        raise UsageError("slopes and alibi_slopes are the same; give one of them")
    slopes = alibi_slopes if slopes is None else slopes
    torch = sys.modules.get("torch")  # a tensor exists only where PyTorch is imported
    if torch is not None and isinstance(q, torch.Tensor):
        return _torch_function().apply(q, k, v, slopes, eps, softmax_scale, window)
    out, _ = _forward(_request(q, k, v, slopes, softmax_scale, window), eps)
    return out.astype(np.asarray(q).dtype, copy=False)


@functools.lru_cache(maxsize=None)
def _cpu() -> Device:
    return Device("cpu")


def _floats(array: Any) -> np.ndarray:
    return np.ascontiguousarray(array, dtype=np.float32)


def _pointer(array: Optional[np.ndarray]) -> Any:
    return None if array is None else array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))


class _Request:
    """struct alibi_attend, and the arrays that it points to."""

    def __init__(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, slopes: Optional[np.ndarray],
                 scale: Optional[float], window: int) -> None:
        self.q, self.k, self.v, self.slopes = q, k, v, slopes
        batch, queries, heads, width = q.shape
        self.struct = structs["alibi_attend"](
            batch=batch, queries=queries, keys=k.shape[1], heads=heads, kv_heads=k.shape[2],
            head_width=width, scale=scale or 0.0, window=window, slopes=_pointer(slopes),
            q=_pointer(q), k=_pointer(k), v=_pointer(v),
        )


def _request(q: Any, k: Any, v: Any, slopes: Any, scale: Optional[float], window: int) -> _Request:
    """Every shape is checked here: the library sees pointers only."""
    q, k, v = _floats(q), _floats(k), _floats(v)
    slopes = None if slopes is None else _floats(slopes)
    if q.ndim != 4 or k.ndim != 4 or k.shape != v.shape:
        raise UsageError(f"q must be [B, L, H, D], and k and v alike, not {q.shape}, {k.shape} and "
                         f"{v.shape}")
    if k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise UsageError(f"q {q.shape} and k {k.shape} differ in batch or width")
    if slopes is not None and slopes.shape != (q.shape[2],):
        raise UsageError(f"slopes must be [heads] = [{q.shape[2]}], the same for every batch, not "
                         f"{slopes.shape}")
    if scale is not None and not scale:
        raise UsageError("softmax_scale must not be 0")
    return _Request(q, k, v, slopes, scale, window)


def _forward(r: _Request, eps: float) -> tuple[np.ndarray, np.ndarray]:
    batch, queries, heads, _ = r.q.shape
    out = np.empty(r.q.shape, np.float32)
    lse = np.empty((batch, heads, queries), np.float32)
    call = structs["alibi_call"](skip=eps)
    lib.alibi_attend(
        _cpu(), ctypes.byref(r.struct), _pointer(out), _pointer(lse), ctypes.byref(call)
    )
    return out, lse


def _backward(r: _Request, out: np.ndarray, lse: np.ndarray, d_out: np.ndarray) -> list[Any]:
    gradients = [np.empty_like(a) if a is not None else None for a in (r.q, r.k, r.v, r.slopes)]
    lib.alibi_attend_backward(
        _cpu(),
        ctypes.byref(r.struct),
        _pointer(out),
        _pointer(lse),
        _pointer(_floats(d_out)),
        *(_pointer(gradient) for gradient in gradients),
    )
    return gradients


@functools.lru_cache(maxsize=None)
def _torch_function() -> Any:
    """The autograd function, made when a tensor is first given: PyTorch may not be there."""
    import torch
    from torch.autograd.function import once_differentiable

    def array(tensor: Any) -> Any:
        if tensor is None or not isinstance(tensor, torch.Tensor):
            return tensor
        if tensor.device.type != "cpu":
            raise UsageError(
                f"a tensor is on '{tensor.device}': the library's interface takes memory of the "
                "CPU only; give tensor.cpu()"
            )
        return np.from_dlpack(tensor.detach().to(torch.float32).contiguous())

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v, slopes, eps, scale, window):
            request = _request(array(q), array(k), array(v), array(slopes), scale, window)
            out, lse = _forward(request, eps)
            ctx.save_for_backward(q, k, v, slopes if isinstance(slopes, torch.Tensor) else None,
                                  torch.from_dlpack(out), torch.from_dlpack(lse))
            ctx.slopes = None if isinstance(slopes, torch.Tensor) else slopes
            ctx.options = (scale, window)
            return torch.from_dlpack(out).to(q.dtype).clone()

        @staticmethod
        @once_differentiable
        def backward(ctx, d_out):
            q, k, v, slopes, out, lse = ctx.saved_tensors
            slopes = ctx.slopes if slopes is None else slopes
            request = _request(array(q), array(k), array(v), array(slopes), *ctx.options)
            gradients = _backward(request, array(out), array(lse), array(d_out))
            given = [
                torch.from_dlpack(gradient).to(tensor.dtype) if needed else None
                for gradient, tensor, needed in zip(
                    gradients, (q, k, v, slopes), ctx.needs_input_grad
                )
            ]
            return (*given, None, None, None)

    return Attention
