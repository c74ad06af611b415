"""alibi.attention against its equation in double precision, and with PyTorch where it is there."""
import unittest

import numpy as np

import alibi

try:
    import torch
except ImportError:
    torch = None


def exact(q, k, v, slopes, scale=None, window=0, lse=False):
    """By the equation, in double precision, with all scores at once. slopes: [H] or [B, H]."""
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    heads, queries, keys = q.shape[2], q.shape[1], k.shape[1]
    k, v = (np.repeat(a, heads // a.shape[2], axis=2) for a in (k, v))
    distance = np.arange(keys - queries, keys)[:, None] - np.arange(keys)[None, :]
    scores = np.einsum("bihd,bjhd->bhij", q, k) * (scale or q.shape[3] ** -0.5)
    if slopes is not None:
        scores -= np.atleast_2d(np.asarray(slopes, np.float64))[:, :, None, None] * distance
    unseen = (distance < 0) | ((distance >= window) if window else False)
    scores = np.where(unseen, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    sums = weights.sum(-1, keepdims=True)
    out = np.einsum("bhij,bjhd->bihd", weights / sums, v)
    return (out, (np.log(sums) + scores.max(-1, keepdims=True))[..., 0]) if lse else out


def draw(queries=70, keys=70, heads=4, kv_heads=2, width=8, batch=2):
    random = np.random.default_rng(3)
    q = random.standard_normal((batch, queries, heads, width)).astype(np.float32)
    k, v = random.standard_normal((2, batch, keys, kv_heads, width)).astype(np.float32)
    return q, k, v, 2.0 ** -(2.0 * np.arange(1, heads + 1)).astype(np.float32)


STARTS = np.array([0, 40, 40, 41, 170], np.int32)  # one sequence is empty, one a single token
FEWER = np.array([0, 7, 7, 8, 73], np.int32)


def pack(starts_q, starts_k, **sizes):
    """q, k, v [total, heads, width] and slopes [batch, heads]."""
    q, k, v, slopes = draw(int(starts_q[-1]), int(starts_k[-1]), batch=1, **sizes)
    count = len(starts_q) - 1
    return q[0], k[0], v[0], np.outer(np.linspace(0.5, 1.5, count), slopes).astype(np.float32)


def longest(starts):
    return int(np.diff(np.asarray(starts)).max())


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

    def test_slopes_may_differ_by_batch_and_lse_is_returned(self):
        q, k, v, slopes = draw(queries=33)
        slopes = np.stack([slopes, 3 * slopes])
        out, lse = alibi.attention(q, k, v, slopes, return_lse=True)
        wanted, wanted_lse = exact(q, k, v, slopes, lse=True)
        np.testing.assert_allclose(out, wanted, atol=2e-5)
        np.testing.assert_allclose(lse, wanted_lse, atol=2e-5)

    def test_packed_sequences_are_those_alone(self):
        for starts in (STARTS, FEWER):
            q, k, v, slopes = pack(starts, STARTS)
            for given in (slopes, slopes[0], None):
                out, lse = alibi.attention_varlen(q, k, v, starts, STARTS.tolist(),
                                                  longest(starts), longest(STARTS), given,
                                                  return_lse=True)
                for b in range(len(starts) - 1):
                    of_q, of_k = slice(*starts[b:b + 2]), slice(*STARTS[b:b + 2])
                    if starts[b] == starts[b + 1]:
                        continue
                    own = slopes[b] if given is slopes else given
                    wanted, wanted_lse = exact(q[None, of_q], k[None, of_k], v[None, of_k], own,
                                               lse=True)
                    np.testing.assert_allclose(out[of_q], wanted[0], atol=2e-5)
                    np.testing.assert_allclose(lse[:, of_q], wanted_lse[0], atol=2e-5)

    def test_decoding_with_a_cache(self):
        q, k, v, slopes = draw(queries=1, keys=90)
        k_cache, v_cache = np.zeros((2, 3, 100, 2, 8), np.float32)
        rows, lengths = np.array([2, 0]), np.array([37, 89])
        for b in range(2):
            k_cache[rows[b], :lengths[b]], v_cache[rows[b], :lengths[b]] = (
                a[b, :lengths[b]] for a in (k, v))
        new_k, new_v = (np.stack([a[b, lengths[b]] for b in range(2)])[:, None] for a in (k, v))
        out = alibi.attention_with_kvcache(q, k_cache, v_cache, new_k, new_v,
                                           cache_seqlens=lengths, cache_batch_idx=rows,
                                           alibi_slopes=slopes)
        again = alibi.attention_with_kvcache(q, k_cache, v_cache, cache_seqlens=lengths + 1,
                                             cache_batch_idx=rows, alibi_slopes=slopes)
        np.testing.assert_array_equal(out, again)
        for b in range(2):
            end = lengths[b] + 1
            np.testing.assert_allclose(out[b:b + 1], exact(q[b:b + 1], k[b:b + 1, :end],
                                                           v[b:b + 1, :end], slopes), atol=2e-5)
        self.assertEqual(alibi.attention_with_kvcache(q, k_cache, v_cache, cache_seqlens=1).shape,
                         q.shape)

    def test_numbers_of_other_types_are_refused(self):
        q, k, v, slopes = draw(queries=5, keys=5)
        for name, wrong in (("q", q.astype(int)), ("k", k > 0), ("v", v.astype(object)),
                            ("q", q.astype(complex)), ("slopes", slopes > 0), ("k", k.tolist())):
            operands = {**dict(q=q, k=k, v=v, slopes=slopes), name: wrong}
            with self.assertRaisesRegex(alibi.UsageError, f"^{name} (is|are|must be) "):
                alibi.attention(**operands)
        ones = np.ones(4)
        np.testing.assert_array_equal(alibi.attention(q, k, v, ones),
                                      alibi.attention(q, k, v, [1, 1, 1, 1]))
        for name, wrong in (("cu_seqlens_q", [0, 2.5, 5]), ("cu_seqlens_k", np.array([0., 5.])),
                            ("max_seqlen_q", 2.5), ("max_seqlen_k", "x")):
            sizes = dict(cu_seqlens_q=[0, 5], cu_seqlens_k=[0, 5], max_seqlen_q=np.int64(5),
                         max_seqlen_k=5)
            alibi.attention_varlen(q[0], k[0], v[0], **sizes)
            with self.assertRaisesRegex(alibi.UsageError, name):
                alibi.attention_varlen(q[0], k[0], v[0], **{**sizes, name: wrong})
        for more in (dict(cache_seqlens=2.5), dict(cache_seqlens=[True, False]),
                     dict(cache_seqlens=2, cache_batch_idx=[0.0, 1.0])):
            with self.assertRaisesRegex(alibi.UsageError, "must be integers, not "):
                alibi.attention_with_kvcache(q[:, :1], k, v, **more)
        with self.assertRaisesRegex(alibi.UsageError, "^k_cache is int64"):
            alibi.attention_with_kvcache(q[:, :1], k.astype(int), v, cache_seqlens=2)
        for more in (dict(window=2.5), dict(eps="x"), dict(softmax_scale="x")):
            with self.assertRaisesRegex(alibi.UsageError, "option"):
                alibi.attention(q, k, v, **more)

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

    def test_wrong_lengths_are_refused(self):
        q, k, v, slopes = pack(STARTS, STARTS)
        for starts_q, starts_k, most in (
            (STARTS, STARTS, 100),
            (STARTS, FEWER, 129),
            (STARTS[:-1], STARTS, 129),
            (STARTS + 1, STARTS + 1, 129),
            (STARTS[::-1], STARTS[::-1], 170),
            (STARTS[None], STARTS[None], 129),
        ):
            with self.assertRaises(alibi.UsageError):
                alibi.attention_varlen(q, k, v, starts_q, starts_k, most, most, slopes)
        q, k, v, slopes = draw(queries=1, keys=9)
        for options in (
            dict(),
            dict(cache_seqlens=0),
            dict(cache_seqlens=10),
            dict(cache_seqlens=3, k=k[:, :1]),
            dict(cache_seqlens=np.ones(1, int), cache_batch_idx=np.array([0, 2])),
            dict(cache_seqlens=3, cache_batch_idx=np.array([0])),
        ):
            with self.assertRaises(alibi.UsageError):
                alibi.attention_with_kvcache(q, k, v, slopes=slopes, **options)
        with self.assertRaisesRegex(alibi.UsageError, "must fit in 32 bits"):
            alibi.attention_with_kvcache(q, k, v, cache_seqlens=np.full(2, 2**32 + 1))
        for rows in ([0, -1], [0, 2], [0]): # nothing is written before it is refused
            caches = k.copy(), v.copy()
            with self.assertRaisesRegex(alibi.UsageError, "cache_batch_idx must be "):
                alibi.attention_with_kvcache(q, *caches, k[:, :1], v[:, :1], cache_seqlens=3,
                                             cache_batch_idx=np.array(rows))
            np.testing.assert_array_equal(caches, (k, v))
        for length in (-1, 9):
            caches = k.copy(), v.copy()
            with self.assertRaises(alibi.UsageError):
                alibi.attention_with_kvcache(q, *caches, k[:, :1], v[:, :1], cache_seqlens=length,
                                             slopes=slopes)
            np.testing.assert_array_equal(caches, (k, v))


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

    def test_packed_sequences_have_the_gradients_of_each_alone(self):
        arrays = pack(STARTS, STARTS)
        tensors = [torch.from_numpy(a.copy()).requires_grad_() for a in arrays]
        apart = [torch.from_numpy(a.copy()).requires_grad_() for a in arrays]
        starts = torch.from_numpy(STARTS)
        out = alibi.attention_varlen(*tensors[:3], starts, starts, 129, 129,
                                     alibi_slopes=tensors[3])
        weight = torch.randn_like(out)
        (out * weight).sum().backward()
        for b in range(len(STARTS) - 1):
            of = slice(*STARTS[b:b + 2])
            if STARTS[b] < STARTS[b + 1]:
                alone = alibi.attention(*(a[None, of] for a in apart[:3]), apart[3][b])
                (alone[0] * weight[of]).sum().backward()
                torch.testing.assert_close(out[of], alone[0])
        for ours, theirs in zip(tensors, apart):
            torch.testing.assert_close(ours.grad, theirs.grad)
        fewer = alibi.attention_varlen(tensors[0], tensors[1], tensors[2], starts,
                                       starts.clone(), 129, 129)
        fewer.sum().backward()  # equal lengths in two tensors
        with self.assertRaises(alibi.UsageError):
            q = tensors[0][:int(FEWER[-1])]
            alibi.attention_varlen(q, tensors[1], tensors[2], torch.from_numpy(FEWER), starts,
                                   65, 129).sum().backward()

    def test_types_stay_and_other_devices_are_refused(self):
        tensors = [torch.from_numpy(a).to(torch.bfloat16) for a in draw()]
        self.assertEqual(alibi.attention(*tensors).dtype, torch.bfloat16)
        with self.assertRaisesRegex(alibi.UsageError, "'meta'"):
            alibi.attention(*(a.to("meta") for a in tensors))

    def test_arrays_and_tensors_are_not_mixed(self):
        arrays = dict(zip(("q", "k", "v", "slopes"), draw(queries=5, keys=5)))
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        for operands, others in ((arrays, tensors), (tensors, arrays)):
            for name in ("k", "v"):
                with self.assertRaisesRegex(alibi.UsageError, f"{name} .*: all must be alike"):
                    alibi.attention(**{**operands, name: others[name]})
        with self.assertRaisesRegex(alibi.UsageError, "slopes a tensor.*: all must be alike"):
            alibi.attention(**{**arrays, "slopes": tensors["slopes"]})
        for wrong in (torch.int64, torch.bool, torch.complex64):
            with self.assertRaisesRegex(alibi.UsageError, f"^k is {wrong}: attention takes"):
                alibi.attention(**{**tensors, "k": tensors["k"].to(wrong)})
        self.assertTrue(torch.equal(alibi.attention(**tensors),
                                    alibi.attention(**{**tensors, "slopes": arrays["slopes"]})))
        starts = torch.tensor([0.0, 5.0])
        with self.assertRaisesRegex(alibi.UsageError, "^cu_seqlens_q must be integers, not torch"):
            alibi.attention_varlen(*(tensors[name][0] for name in "qkv"), starts, starts, 5, 5)

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

    def test_packed_sequences_are_those_alone(self):
        for dtype, limit in ((torch.float32, 2e-5), (torch.bfloat16, 1.5e-2)):
            for width in (64, 128, 24):
                arrays = pack(STARTS, STARTS, width=width)
                tensors = [torch.from_numpy(a).cuda() for a in arrays]
                tensors = [a.to(dtype).requires_grad_() for a in tensors[:3]] + tensors[3:]
                apart = [a.detach().double().requires_grad_() for a in tensors]
                tensors[3].requires_grad_()
                starts = torch.from_numpy(STARTS).cuda()
                out = alibi.attention_varlen(*tensors[:3], starts, starts, 129, 129, tensors[3])
                weight = torch.randn_like(out)
                (out * weight).sum().backward()
                for b in range(len(STARTS) - 1):
                    of = slice(*STARTS[b:b + 2])
                    if STARTS[b] == STARTS[b + 1]:
                        continue
                    alone = self.equation(*(a[None, of] for a in apart[:3]), apart[3][b], 0)[0]
                    torch.testing.assert_close(out[of].double(), alone, atol=limit, rtol=limit)
                    (alone * weight[of].double()).sum().backward()
                for ours, theirs in zip(tensors, apart):
                    scale = theirs.grad.abs().max().item()
                    torch.testing.assert_close(ours.grad.double(), theirs.grad,
                                               atol=4 * limit * scale, rtol=4 * limit)

    def test_slopes_of_each_batch_have_their_gradients(self):
        q, k, v, slopes = (torch.from_numpy(a).cuda() for a in draw(width=64))
        slopes = torch.stack([slopes, 3 * slopes]).requires_grad_()
        alibi.attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), slopes).sum().backward()
        for b in range(2):
            alone = slopes[b].detach().requires_grad_()
            alibi.attention(*(a[b:b + 1].bfloat16() for a in (q, k, v)), alone).sum().backward()
            torch.testing.assert_close(slopes.grad[b], alone.grad)

    def test_decoding_with_a_cache(self):
        q, k, v, slopes = (torch.from_numpy(a).cuda() for a in draw(queries=1, keys=300, width=64))
        lengths = torch.tensor([299, 5], device="cuda")
        rows = torch.tensor([1, 0], device="cuda")
        k_cache, v_cache = torch.zeros(2, 2, 300, 2, 64, device="cuda")
        for b in range(2):
            k_cache[rows[b], :lengths[b]], v_cache[rows[b], :lengths[b]] = (
                a[b, :lengths[b]] for a in (k, v))
        new = (torch.stack([a[b, lengths[b]] for b in range(2)])[:, None] for a in (k, v))
        out = alibi.attention_with_kvcache(q, k_cache, v_cache, *new, cache_seqlens=lengths,
                                           cache_batch_idx=rows, alibi_slopes=slopes)
        for b in range(2):
            end = int(lengths[b]) + 1
            wanted = self.equation(q[b:b + 1].double(), k[b:b + 1, :end].double(),
                                   v[b:b + 1, :end].double(), slopes.double(), 0)
            torch.testing.assert_close(out[b:b + 1].double(), wanted, atol=2e-5, rtol=2e-5)

    def test_it_can_be_captured_in_a_graph(self):
        q, k, v, slopes = (torch.from_numpy(a).cuda() for a in
                           draw(queries=256, keys=256, heads=8, kv_heads=8, width=64))
        q, k, v = (a.bfloat16() for a in (q, k, v))
        wanted = alibi.attention(q, k, v, slopes, eps=1e-4)  # the kernels are loaded
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = alibi.attention(q, k, v, slopes, eps=1e-4)
        got.zero_()
        graph.replay()
        torch.testing.assert_close(got, wanted, atol=0, rtol=0)

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
