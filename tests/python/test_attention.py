"""alibi.attention against its equation in double precision, and with PyTorch where it is there."""
import unittest

import numpy as np

import alibi

try:
    import torch
except ImportError:
    torch = None


def exact(q, k, v, slopes, scale=None, window=0):
    """By the equation, in double precision, with all scores at once."""
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    heads, queries, keys = q.shape[2], q.shape[1], k.shape[1]
    k, v = (np.repeat(a, heads // a.shape[2], axis=2) for a in (k, v))
    distance = np.arange(keys - queries, keys)[:, None] - np.arange(keys)[None, :]
    scores = np.einsum("bihd,bjhd->bhij", q, k) * (scale or q.shape[3] ** -0.5)
    if slopes is not None:
        scores -= np.asarray(slopes, np.float64)[None, :, None, None] * distance
    unseen = (distance < 0) | ((distance >= window) if window else False)
    scores = np.where(unseen, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhij,bjhd->bihd", weights / weights.sum(-1, keepdims=True), v)


def draw(queries=70, keys=70, heads=4, kv_heads=2, width=8, batch=2):
    random = np.random.default_rng(3)
    q = random.standard_normal((batch, queries, heads, width)).astype(np.float32)
    k, v = random.standard_normal((2, batch, keys, kv_heads, width)).astype(np.float32)
    return q, k, v, 2.0 ** -(2.0 * np.arange(1, heads + 1)).astype(np.float32)


class Arrays(unittest.TestCase):
    def test_attention_is_that_of_the_equation(self):
        for sizes in (dict(), dict(queries=1), dict(queries=33), dict(kv_heads=4, width=5)):
            q, k, v, slopes = draw(**sizes)
            for options in (dict(), dict(window=7), dict(softmax_scale=0.3)):
                wanted = exact(q, k, v, slopes, options.get("softmax_scale"),
                               options.get("window", 0))
                got = alibi.attention(q, k, v, slopes, **options)
                np.testing.assert_allclose(got, wanted, atol=2e-5)
            np.testing.assert_allclose(alibi.attention(q, k, v), exact(q, k, v, None), atol=2e-5)

    def test_skipping_stays_within_its_bound(self):
        q, k, v, _ = draw(queries=700, keys=700)
        slopes = np.full(4, 0.05, np.float32)
        eps = 0.05
        error = np.abs(alibi.attention(q, k, v, slopes, eps=eps) - exact(q, k, v, slopes)).max()
        largest = np.sqrt((v.astype(np.float64) ** 2).sum(-1)).max()
        self.assertLess(error, 2 * eps * largest + 1e-5)
        self.assertGreater(np.abs(alibi.attention(q, k, v, slopes, eps=eps)
                                  - alibi.attention(q, k, v, slopes)).max(), 0)

    def test_views_and_types_are_accepted(self):
        q, k, v, slopes = draw()
        packed = np.concatenate([q, np.repeat(k, 2, 2), np.repeat(v, 2, 2)], -1)
        views = np.split(packed, 3, -1)
        np.testing.assert_array_equal(alibi.attention(*views, alibi_slopes=slopes.tolist()),
                                      alibi.attention(*(a.copy() for a in views), slopes))
        self.assertEqual(alibi.attention(*(a.astype(np.float64) for a in (q, k, v))).dtype,
                         np.float64)

    def test_what_does_not_fit_is_refused(self):
        q, k, v, slopes = draw()
        for arguments, options in (
            ((q, k, v, slopes), dict(causal=False)),
            ((q, k, v, slopes[:3]), dict()),
            ((q, k, v, slopes), dict(alibi_slopes=slopes)),
            ((q, k, v[:, :9], slopes), dict()),
            ((q[:1], k, v, slopes), dict()),
            ((q[0], k, v, slopes), dict()),
            ((q, k[:, :9], v[:, :9], slopes), dict()),
            ((q, k, v, slopes), dict(eps=1.0)),
            ((q, k, v, slopes), dict(window=-1)),
            ((q, k, v, slopes), dict(softmax_scale=0.0)),
        ):
            with self.assertRaises(alibi.UsageError):
                alibi.attention(*arguments, **options)


@unittest.skipIf(torch is None, "no PyTorch")
class Tensors(unittest.TestCase):
    def test_tensors_have_the_values_of_arrays_and_their_gradients(self):
        arrays = draw(queries=20, keys=20)
        tensors = [torch.from_numpy(a.copy()).requires_grad_() for a in arrays]
        out = alibi.attention(*tensors)
        np.testing.assert_array_equal(out.detach().numpy(), alibi.attention(*arrays))
        weight = torch.randn_like(out)
        (out * weight).sum().backward()
        doubles = [torch.from_numpy(a.astype(np.float64)).requires_grad_() for a in arrays]
        q, k, v, slopes = doubles
        k, v = (a.repeat_interleave(2, 2) for a in (k, v))
        place = torch.arange(20)
        distance = place[:, None] - place[None, :]
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[3] ** -0.5
        scores = scores - slopes[None, :, None, None] * distance
        scores = scores.masked_fill(distance < 0, -torch.inf)
        wanted = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)
        (wanted * weight).sum().backward()
        for ours, theirs in zip(tensors, doubles):
            torch.testing.assert_close(ours.grad, theirs.grad.float(), atol=2e-4, rtol=1e-4)

    def test_gradcheck(self):
        # The library computes in fp32, so the step and the tolerance are those of fp32.
        inputs = [torch.from_numpy(a.astype(np.float64)).requires_grad_()
                  for a in draw(queries=5, keys=5, width=4, batch=1)]
        self.assertTrue(torch.autograd.gradcheck(alibi.attention, inputs, eps=2e-3, atol=5e-3,
                                                 rtol=1e-2))

    def test_types_stay_and_other_devices_are_refused(self):
        tensors = [torch.from_numpy(a).to(torch.bfloat16) for a in draw()]
        self.assertEqual(alibi.attention(*tensors).dtype, torch.bfloat16)
        with self.assertRaisesRegex(alibi.UsageError, "'meta'"):
            alibi.attention(*(a.to("meta") for a in tensors))

    def test_a_broadcast_gradient(self):
        tensors = [torch.from_numpy(a).requires_grad_() for a in draw(queries=9, keys=9)]
        alibi.attention(*tensors).sum().backward()
        broadcast = [a.grad.clone() for a in tensors]
        for a in tensors:
            a.grad = None
        out = alibi.attention(*tensors)
        out.backward(torch.ones_like(out))
        for ours, theirs in zip(tensors, broadcast):
            torch.testing.assert_close(ours.grad, theirs)


@unittest.skipUnless(torch is not None and torch.cuda.is_available(), "no GPU")
class GpuTensors(unittest.TestCase):
    def compare(self, dtype, limit, sizes, options, make=lambda a: a):
        """Values and gradients against the equation in double precision on the same numbers."""
        tensors = [torch.from_numpy(a).cuda() for a in draw(**sizes)]
        tensors = [make(a.to(dtype)) for a in tensors[:3]] + tensors[3:]
        doubles = [a.double().requires_grad_() for a in tensors]
        tensors = [a.requires_grad_() for a in tensors]
        out = alibi.attention(*tensors, **options)
        self.assertEqual((out.dtype, out.device.type), (dtype, "cuda"))
        wanted = self.equation(*doubles, options.get("window", 0))
        torch.testing.assert_close(out.double(), wanted, atol=limit, rtol=limit)
        if sizes.get("queries", 70) != sizes.get("keys", 70):
            return
        weight = torch.randn_like(out)
        (out * weight).sum().backward()
        (wanted * weight.double()).sum().backward()
        for ours, theirs in zip(tensors, doubles):
            scale = theirs.grad.abs().max().item()
            torch.testing.assert_close(ours.grad.double(), theirs.grad, atol=4 * limit * scale,
                                       rtol=4 * limit)

    @staticmethod
    def equation(q, k, v, slopes, window):
        repeats = q.shape[2] // k.shape[2]
        k, v = (a.repeat_interleave(repeats, 2) for a in (k, v))
        distance = (torch.arange(k.shape[1] - q.shape[1], k.shape[1])[:, None]
                    - torch.arange(k.shape[1])[None, :]).cuda()
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[3] ** -0.5
        scores = scores - slopes[None, :, None, None] * distance
        unseen = (distance < 0) | ((distance >= window) if window else distance < 0)
        return torch.einsum("bhij,bjhd->bihd",
                            scores.masked_fill(unseen, -torch.inf).softmax(-1), v)

    def test_attention_is_that_of_the_equation(self):
        for dtype, limit in ((torch.float32, 2e-5), (torch.bfloat16, 1.5e-2)):
            for sizes in (dict(width=64), dict(queries=300, keys=300, width=128), dict(width=5),
                          dict(queries=1, width=64), dict(queries=33, width=64)):
                for options in (dict(), dict(window=7)):
                    with self.subTest(dtype=dtype, **sizes, **options):
                        self.compare(dtype, limit, sizes, options)

    def test_views_of_a_fused_projection(self):
        def strided(a):
            wide = a.new_zeros((*a.shape[:3], 2 * a.shape[3]))
            wide[..., :a.shape[3]] = a
            return wide[..., :a.shape[3]]

        self.compare(torch.bfloat16, 1.5e-2, dict(width=64), dict(), strided)

    def test_it_is_part_of_the_current_stream(self):
        q, k, v, slopes = (torch.from_numpy(a).cuda() for a in
                           draw(queries=512, keys=512, heads=8, kv_heads=8, width=64))
        wanted = alibi.attention(2 * q, k, v, slopes) + 1
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)  # what is queued before must be done before
            got = alibi.attention(2 * q, k, v, slopes) + 1
        stream.synchronize()
        torch.testing.assert_close(got, wanted)

    def test_gradcheck(self):
        inputs = [torch.from_numpy(a).cuda().requires_grad_()
                  for a in draw(queries=5, keys=5, width=4, batch=1)]
        self.assertTrue(torch.autograd.gradcheck(alibi.attention, inputs, eps=2e-3, atol=5e-3,
                                                 rtol=1e-2))

    def test_what_does_not_fit_is_refused(self):
        q, k, v, slopes = (torch.from_numpy(a).cuda() for a in draw())
        for operands in ((q.half(), k.half(), v.half()), (q.bfloat16(), k, v), (q, k.cpu(), v)):
            with self.assertRaises(alibi.UsageError):
                alibi.attention(*operands, slopes)


if __name__ == "__main__":
    unittest.main()
