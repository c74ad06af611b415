/* sequence.c - a sequence divided among ranks: the keys and values that attention needs from other
 * ranks
 *
 * Each rank has the queries, keys and values of its part. The layers between two attentions work on
 * single tokens; only attention needs other tokens, and it is causal, so keys and values are sent
 * from earlier parts to later ones. Before the attention of a layer
 *
 *   1. all ranks get the largest norm of each tile of keys, a number per tile and head;
 *   2. each finds the tiles that its queries need: those in the window, and with a skipping budget
 *      only those that a bound does not prove to be without weight (lib/ops/needed.c);
 *   3. all ranks get these lists, one bit per tile and head, and each sends what others need;
 *   4. the needed tiles, zeros in the place of others, and the own keys are side by side, from the
 *      first tile that some head needs: attention takes them as the keys of a longer sequence, of
 *      which it has the last queries. So every backend and every kind of bias work without changes,
 * and in the order of one process.
 *
 * Sums of gates, two numbers per token and head beside the 2 D of keys and values, go to all ranks
 * in step 1. Each rank begins its sums with 0 at its part; those of earlier parts are shifted to
 * that beginning.
 *
 * A key of zeros has a score that is its bias alone, below the bound of the tile that it stands
 * for, and adds nothing to y. So tiles that were not sent cause at most twice the error of skipping
 * them. They get a quarter of the budget, and attention itself half of it: together no more
 * than one process promises, except that the log-sum-exp may err to both sides.
 *
 * A rank that fails outside of sequence_fetch calls sequence_end: its agreement meets that with
 * which others begin the next exchange, and all ranks end. */
#include <string.h>

#include "comm/ranks.h"

struct sequence {
    alibi_comm *comm;
    struct device *device;
    struct channel *channel;
    int rank, size;
    int64_t length;
    bool ended;   /* the pass has failed, and there is nothing to agree on any more */
    void *buffer; /* keys, then values, on the device */
    size_t bytes;
    void *gates; /* their sums, on the device */
    size_t gates_bytes;
    struct sequence_traffic traffic;
};

struct range sequence_part(int64_t length, int rank, int size)
{
    int64_t tiles = attention_tiles(length), first = tiles * rank / size * ATTENTION_TILE;
    int64_t end = tiles * (rank + 1) / size * ATTENTION_TILE;

    end = end < length ? end : length;
    return (struct range){ first, end - first };
}

alibi_status sequence_new(struct sequence **out, alibi_comm *c, struct device *dev,
                          const struct alibi_call *call)
{
    struct sequence *s = NULL;
    alibi_status status = NEW_ZERO_ARRAY(&s, 1, "a divided sequence");

    TRY(comm_agree(c, status));
    *s = (struct sequence){ .comm = c, .device = dev, .rank = comm_rank(c), .size = comm_size(c) };
    device_lock(dev);
    status = channel_new(&s->channel, c, dev, DTYPE_F32, ALIBI_COMM_AUTO, call);
    device_unlock(dev);
    TRY(status);
    *out = s;
    s = NULL;
out:
    sequence_free(s);
    return status;
}

void sequence_free(struct sequence *s)
{
    if (s == NULL)
        return;
    device_lock(s->device);
    channel_free(s->channel);
    s->device->ops->buffer_free(s->device, s->buffer);
    s->device->ops->buffer_free(s->device, s->gates);
    device_unlock(s->device);
    mem_free(s);
}

void sequence_begin(struct sequence *s, int64_t length)
{
    s->length = length;
    s->ended = false;
}

/* A failure that all ranks have is the end of the pass. */
static alibi_status agree(struct sequence *s, alibi_status status)
{
    status = comm_agree(s->comm, status);
    s->ended = status != ALIBI_OK;
    return status;
}

alibi_status sequence_end(struct sequence *s, alibi_status status)
{
    return s->ended ? status : agree(s, status);
}

struct sequence_traffic sequence_traffic(const struct sequence *s)
{
    return s->traffic;
}

/* ---- one fetch */

struct fetch {
    struct sequence *s;
    struct attention_args *a;
    int64_t sinks;
    int64_t tiles;    /* before the own part */
    int64_t most;     /* tiles of a part */
    int64_t words;    /* of a row of needed */
    int64_t from;     /* the first tile that attention sees */
    float *norms;     /* [size][Hkv][most] */
    uint32_t *needed; /* [size][Hkv][words] */
    int64_t *lists;   /* [2][size][2 Hkv most]: tiles from each rank, and to each */
    int64_t *counts;  /* [2][size] */
    float *before;    /* [Hkv][tiles]: the norms of the tiles before the own part */
    float *queries;   /* [Lq][H]: norms */
    float *lse;       /* [H][Lq]: over the nearest keys */
    float *bias;      /* bias.values on the host */
    int64_t G;        /* gates; 0: the bias is by distance */
    float *gates;     /* [size][2][G][most tiles]: sums, each from the beginning of its part */
    double *sums;     /* [G][tokens up to the end of the own part], from its beginning */
    double *marks;    /* needed_args: key_gates, then query_gates */
    void *scratch;    /* on the device: norms of keys, then of queries */
};

static void fetch_free(struct fetch *f)
{
    f->s->device->ops->buffer_free(f->s->device, f->scratch);
    mem_free(f->norms);
    mem_free(f->needed);
    mem_free(f->lists);
    mem_free(f->counts);
    mem_free(f->before);
    mem_free(f->queries);
    mem_free(f->lse);
    mem_free(f->bias);
    mem_free(f->gates);
    mem_free(f->sums);
    mem_free(f->marks);
}

static int64_t tiles_before(const struct sequence *s, int rank)
{
    return attention_tiles(s->length) * rank / s->size;
}

/* Whether tiles before the own part may not be needed. */
static bool may_skip(const struct fetch *f)
{
    return f->tiles > 0 && f->a->q.shape[1] > 0 && attention_may_skip(&f->a->bias, f->a->skip.eps);
}

/* The largest norms of the own key tiles, for all ranks. */
static alibi_status measure_keys(struct fetch *f)
{
    struct device *dev = f->s->device;
    int64_t Hkv = f->a->k.shape[2], tiles = attention_tiles(f->a->k.shape[1]);
    struct tensor norms = tensor_3(f->scratch, dtype_sums(f->a->k.type), 1, Hkv, tiles);

    if (tiles == 0)
        return ALIBI_OK;
    TRY_RETURN(dev->ops->attention_norms(dev, norms, f->a->k, 0));
    for (int64_t h = 0; h < Hkv; h++)
        TRY_RETURN(dev->ops->download(dev, f->norms + (f->s->rank * Hkv + h) * f->most,
                                      tensor_1(tensor_at(norms, h * tiles), norms.type, tiles)));
    return ALIBI_OK;
}

/* Computes for each query its norm, and the log-sum-exp over the last tile of keys up to its own;
 * attention overwrites y and lse later. */
static alibi_status measure_queries(struct fetch *f)
{
    struct device *dev = f->s->device;
    struct attention_args near = *f->a;
    int64_t Lq = f->a->q.shape[1], H = f->a->q.shape[2];
    struct tensor norms = tensor_3(f->scratch, dtype_sums(f->a->q.type), Lq, H, 1);
    struct tensor each = f->a->q; /* as Lq sequences of one token */

    each.shape[0] = Lq;
    each.shape[1] = 1;
    each.stride[0] = each.stride[1];
    TRY_RETURN(dev->ops->attention_norms(dev, norms, each, 0));
    TRY_RETURN(dev->ops->download(dev, f->queries, norms));
    near.window = near.window > 0 && near.window < ATTENTION_TILE ? near.window : ATTENTION_TILE;
    near.skip = (struct skipping){ 0 };
    TRY_RETURN(dev->ops->attention_forward(dev, &near));
    TRY_RETURN(dev->ops->download(dev, f->lse, f->a->lse));
    return f->G > 0 ? ALIBI_OK : dev->ops->download(dev, f->bias, f->a->bias.values);
}

/* Tokens of the largest part, in whole tiles. */
static int64_t part_room(const struct fetch *f)
{
    return f->most * ATTENTION_TILE;
}

/* The own sums of gates, for all ranks. */
static alibi_status read_gates(struct fetch *f)
{
    struct device *dev = f->s->device;
    int64_t Lq = f->a->q.shape[1], tokens = f->tiles * ATTENTION_TILE + Lq;
    int64_t each = 2 * f->G * part_room(f);

    TRY_RETURN(NEW_ZERO_ARRAY(&f->gates, f->s->size * each, "the gates of ranks"));
    TRY_RETURN(NEW_ARRAY(&f->sums, f->G * tokens, "the gates of earlier keys"));
    TRY_RETURN(NEW_ARRAY(&f->marks, f->G * attention_tiles(tokens), "the gates of tiles"));
    for (int64_t n = 0; n < 2 * f->G && Lq > 0; n++)
        TRY_RETURN(dev->ops->download(dev, f->gates + f->s->rank * each + n * part_room(f),
                                      vector_part(f->a->bias.values, n * Lq, Lq)));
    return ALIBI_OK;
}

/* All that this rank does alone before the first exchange, so that a failure is agreed on. */
static alibi_status prepare(struct fetch *f)
{
    struct sequence *s = f->s;
    struct device *dev = s->device;
    int64_t Lq = f->a->q.shape[1], H = f->a->q.shape[2], Hkv = f->a->k.shape[2];
    int64_t keys = Hkv * f->most, queries = Lq * H, tile = ATTENTION_TILE * f->a->k.shape[3];
    size_t bytes = 0;

    if (channel_room(s->channel, f->a->k.type) < tile)
        return fail(ALIBI_USAGE, "%d ranks: heads of %lld numbers are too wide", s->size,
                    (long long)f->a->k.shape[3]);
    TRY_RETURN(NEW_ZERO_ARRAY(&f->norms, s->size * keys, "the norms of keys"));
    TRY_RETURN(NEW_ZERO_ARRAY(&f->needed, s->size * Hkv * f->words, "the keys that ranks need"));
    TRY_RETURN(NEW_ARRAY(&f->lists, 4 * s->size * keys, "the tiles between ranks"));
    TRY_RETURN(NEW_ARRAY(&f->counts, 2 * s->size, "the counts of ranks"));
    if (!size_product(&bytes, (int64_t[]){ keys > queries ? keys : queries, sizeof(double) }, 2))
        return fail(ALIBI_MEMORY, "the norms of %lld queries do not fit", (long long)Lq);
    TRY_RETURN(dev->ops->buffer_new(dev, &f->scratch, bytes, "norms"));
    TRY_RETURN(measure_keys(f));
    if (f->G > 0)
        TRY_RETURN(read_gates(f));
    if (!may_skip(f))
        return ALIBI_OK;
    TRY_RETURN(NEW_ARRAY(&f->before, Hkv * f->tiles, "the norms of earlier keys"));
    TRY_RETURN(NEW_ARRAY(&f->queries, queries, "the norms of queries"));
    TRY_RETURN(NEW_ARRAY(&f->lse, queries, "the weights of near keys"));
    if (f->G == 0)
        TRY_RETURN(NEW_ARRAY(&f->bias, tensor_count(f->a->bias.values), "the bias by distance"));
    return measure_queries(f);
}

/* The rank that has a tile. */
static int owner(const struct sequence *s, int64_t tile)
{
    int rank = 0;

    while (tile >= tiles_before(s, rank + 1))
        rank++;
    return rank;
}

static bool is_needed(const struct fetch *f, int rank, int64_t kv, int64_t tile)
{
    return f->needed[(rank * f->a->k.shape[2] + kv) * f->words + tile / 32] >> tile % 32 & 1;
}

/* Room in one of the buffers, whose content is lost. */
static alibi_status reserve(struct sequence *s, void **buffer, size_t *bytes,
                            const int64_t factors[5])
{
    size_t wanted = 0;

    if (!size_product(&wanted, factors, 5))
        return fail(ALIBI_MEMORY, "the keys of %lld tokens do not fit", (long long)factors[1]);
    if (wanted <= *bytes)
        return ALIBI_OK;
    s->device->ops->buffer_free(s->device, *buffer);
    *buffer = NULL;
    *bytes = 0;
    TRY_RETURN(s->device->ops->buffer_new(s->device, buffer, wanted, "keys of other ranks"));
    *bytes = wanted;
    return ALIBI_OK;
}

/* Sums of gates from the beginning of the own part: earlier ones are above 0, and those of a part
 * are as much above those of the next one as the gates of that part close. */
static void shift_gates(struct fetch *f)
{
    int64_t Lq = f->a->q.shape[1], tokens = f->tiles * ATTENTION_TILE + Lq;

    for (int64_t g = 0; g < f->G; g++) {
        double *sums = f->sums + g * tokens, shift = 0;

        for (int r = f->s->rank; r >= 0; r--) {
            struct range part = sequence_part(f->s->length, r, f->s->size);
            const float *sum = f->gates + (r * 2 * f->G + g) * part_room(f);
            const float *rest = sum + f->G * part_room(f);

            if (r < f->s->rank && part.count > 0)
                shift += (double)sum[part.count - 1] + (double)rest[part.count - 1];
            for (int64_t l = 0; l < part.count; l++)
                sums[part.first + l] = (double)sum[l] + (double)rest[l] - shift;
        }
        for (int64_t t = 0; t < f->tiles; t++)
            f->marks[g * f->tiles + t] = sums[(t + 1) * ATTENTION_TILE - 1];
        for (int64_t t = 0; t < attention_tiles(Lq); t++)
            f->marks[f->G * f->tiles + g * attention_tiles(Lq) + t] =
                sums[(f->tiles + t) * ATTENTION_TILE];
    }
}

/* The sums from the first tile that attention sees on, to the device. */
static alibi_status place_gates(struct fetch *f)
{
    struct sequence *s = f->s;
    int64_t from = f->from * ATTENTION_TILE;
    int64_t tokens = f->tiles * ATTENTION_TILE + f->a->q.shape[1], keys = tokens - from;
    enum dtype type = f->a->bias.values.type;
    float *row = NULL;
    alibi_status status;

    TRY(reserve(s, &s->gates, &s->gates_bytes,
                (int64_t[]){ 2, keys, f->G, 1, (int64_t)dtype_bytes(type) }));
    TRY(NEW_ARRAY(&row, keys, "the gates of earlier keys"));
    for (int64_t n = 0; n < 2 * f->G; n++) {
        const double *sums = f->sums + n % f->G * tokens + from;

        for (int64_t l = 0; l < keys; l++) {
            float sum = (float)sums[l];
            row[l] = n < f->G ? sum : (float)(sums[l] - (double)sum);
        }
        TRY(s->device->ops->upload(
            s->device, vector_part(tensor_1(s->gates, type, 2 * f->G * keys), n * keys, keys),
            row));
    }
out:
    mem_free(row);
    return status;
}

/* Fills in the own rows of needed, and makes room for what is needed. */
static alibi_status choose(struct fetch *f)
{
    struct sequence *s = f->s;
    const struct attention_args *a = f->a;
    int64_t Hkv = a->k.shape[2], D = a->k.shape[3], rows;
    struct needed_args args = { .first = f->tiles,
                                .Lq = a->q.shape[1],
                                .H = a->q.shape[2],
                                .Hkv = Hkv,
                                .bias = a->bias,
                                .window = a->window,
                                .scale = a->scale,
                                .eps = may_skip(f) ? a->skip.eps / 4 : 0,
                                .norms = f->before,
                                .queries = f->queries,
                                .lse = f->lse,
                                .key_gates = f->marks,
                                .words = f->words };
    uint32_t *mine = f->needed + s->rank * Hkv * f->words;

    f->from = f->tiles;
    if (args.Lq == 0 || f->tiles == 0)
        return ALIBI_OK;
    args.bias.values.data = f->bias;
    args.query_gates = f->G > 0 ? f->marks + f->G * f->tiles : NULL;
    if (f->G > 0)
        shift_gates(f);
    for (int64_t n = 0; may_skip(f) && n < Hkv * f->tiles; n++) {
        int64_t kv = n / f->tiles, tile = n % f->tiles;
        int rank = owner(s, tile);

        f->before[n] = f->norms[(rank * Hkv + kv) * f->most + tile - tiles_before(s, rank)];
    }
    TRY_RETURN(attention_needed(&args, mine));
    for (int64_t n = 0; n < Hkv * f->tiles; n++)
        if (is_needed(f, s->rank, n / f->tiles, n % f->tiles) && n % f->tiles < f->from)
            f->from = n % f->tiles;
    for (int64_t kv = 0; kv < Hkv && f->sinks > 0; kv++)
        mine[kv * f->words] |= 1;
    if (f->G > 0)
        TRY_RETURN(place_gates(f));
    rows = (f->tiles - f->from + 1) * ATTENTION_TILE + args.Lq; /* with a tile for the sinks */
    return reserve(s, &s->buffer, &s->bytes,
                   (int64_t[]){ 2, rows, Hkv, D, (int64_t)dtype_bytes(a->k.type) });
}

/* ---- tiles on their way */

/* The tiles that a rank needs of another one's part, head by head, first the keys of each and then
 * its values: both know that order, and nothing else is sent. Returns how many; list may be NULL.
 */
static int64_t tiles_between(const struct fetch *f, int from, int to, int64_t *list)
{
    int64_t first = tiles_before(f->s, from), end = tiles_before(f->s, from + 1), count = 0;

    for (int64_t head = 0; from < to && head < 2 * f->a->k.shape[2]; head++)
        for (int64_t tile = first; tile < end; tile++) {
            if (!is_needed(f, to, head / 2, tile))
                continue;
            if (list)
                list[count] = head * (f->most + 1) + tile - first;
            count++;
        }
    return count;
}

/* Where keys or values are side by side: a tile for sinks, the tiles from f->from on, the own. */
static struct tensor gathered(const struct fetch *f, bool values)
{
    struct tensor k = f->a->k;
    int64_t rows = (f->tiles - f->from + 1) * ATTENTION_TILE + f->a->q.shape[1];
    struct tensor both = tensor_4(f->s->buffer, k.type, 2, rows, k.shape[2], k.shape[3]);

    if (values)
        both.data = tensor_at(both, both.stride[0]);
    both.shape[0] = 1;
    return both;
}

static int64_t gathered_row(const struct fetch *f, int64_t tile)
{
    return tile < f->from ? 0 : (1 + tile - f->from) * ATTENTION_TILE;
}

/* Rows from..from+count-1 of a view. */
static struct tensor some_rows(struct tensor view, int64_t from, int64_t count)
{
    view.data = tensor_at(view, from * view.stride[1]);
    view.shape[1] = count;
    return view;
}

/* Listed tiles of a rank's part to a row of the channel, or from there to their place. */
static alibi_status copy_tiles(const struct fetch *f, int rank, const int64_t *list, int64_t count,
                               struct tensor row, bool back)
{
    struct device *dev = f->s->device;
    int64_t D = f->a->k.shape[3], side_by_side;

    for (int64_t n = 0; n < count; n += side_by_side) {
        int64_t head = list[n] / (f->most + 1), tile = list[n] % (f->most + 1), tokens;
        bool values = head % 2 == 1;
        struct tensor packed, there = values ? f->a->v : f->a->k;

        side_by_side = 1; /* never from one head to the next: numbers leave a gap there */
        while (n + side_by_side < count && list[n + side_by_side] == list[n] + side_by_side)
            side_by_side++;
        tokens = side_by_side * ATTENTION_TILE;
        packed = tensor_4(tensor_at(row, n * ATTENTION_TILE * D), row.type, 1, tokens, 1, D);
        if (back)
            there = some_rows(gathered(f, values), gathered_row(f, tiles_before(f->s, rank) + tile),
                              tokens);
        else
            there = some_rows(there, tile * ATTENTION_TILE, tokens);
        there.data = tensor_at(there, head / 2 * D);
        there.shape[2] = 1;
        TRY_RETURN(dev->ops->copy(dev, back ? there : packed, back ? packed : there));
    }
    return ALIBI_OK;
}

/* The number of tiles from `first` on, of `count`, that one exchange passes: at most `most`. */
static int64_t tiles_at_once(int64_t count, int64_t first, int64_t most)
{
    return count <= first ? 0 : count - first < most ? count - first : most;
}

/* All tiles that are needed, in exchanges of at most a row of each rank. A rank that cannot copy
 * tiles takes part in all of them. An exchange that fails here may continue elsewhere, where nobody
 * would answer an agreement: that is the end of the pass without one. */
static alibi_status pass_tiles(struct fetch *f, alibi_status status)
{
    struct sequence *s = f->s;
    enum dtype type = f->a->k.type;
    int64_t each = 2 * f->a->k.shape[2] * f->most, tile = ATTENTION_TILE * f->a->k.shape[3];
    int64_t room = channel_room(s->channel, type) / tile, longest = 0;
    int64_t *from = f->lists, *to = f->lists + s->size * each;
    alibi_status passed;

    for (int pair = 0; pair < s->size * s->size; pair++) {
        int64_t count = tiles_between(f, pair / s->size, pair % s->size, NULL);

        longest = count > longest ? count : longest;
    }
    for (int r = 0; r < s->size; r++) {
        f->counts[r] = tiles_between(f, r, s->rank, from + r * each);
        f->counts[s->size + r] = tiles_between(f, s->rank, r, to + r * each);
        s->traffic.sent += f->counts[s->size + r] * tile * (int64_t)dtype_bytes(type);
        if (r > s->rank && sequence_part(s->length, r, s->size).count > 0)
            s->traffic.all += each / f->most * attention_tiles(f->a->k.shape[1]) * tile *
                              (int64_t)dtype_bytes(type);
    }
    for (int64_t first = 0; first < longest; first += room) {
        for (int r = 0; r < s->size; r++) {
            int64_t some = tiles_at_once(f->counts[s->size + r], first, room);
            struct tensor row = channel_outgoing(s->channel, r, type, some * tile);

            if (status == ALIBI_OK)
                status = copy_tiles(f, s->rank, to + r * each + first, some, row, false);
            (void)channel_incoming(s->channel, r, type,
                                   tiles_at_once(f->counts[r], first, room) * tile);
        }
        passed = channel_exchange(s->channel);
        s->ended = passed != ALIBI_OK;
        TRY_RETURN(passed);
        for (int r = 0; r < s->size && status == ALIBI_OK; r++) {
            int64_t some = tiles_at_once(f->counts[r], first, room);
            struct tensor row = channel_incoming(s->channel, r, type, some * tile);

            status = copy_tiles(f, r, from + r * each + first, some, row, true);
        }
    }
    return status;
}

/* Zeros for what is not needed, and the own keys and values after what was received. */
static alibi_status fill_gaps(const struct fetch *f)
{
    struct device *dev = f->s->device;
    int64_t far = (f->tiles - f->from) * ATTENTION_TILE, own = f->a->q.shape[1];

    for (int values = 0; values < 2 && far > 0; values++) {
        struct tensor all = gathered(f, values);
        struct tensor before = some_rows(all, ATTENTION_TILE, far);

        TRY_RETURN(dev->ops->fill(dev, tensor_1(before.data, all.type, far * all.stride[1]), 0.0));
        TRY_RETURN(dev->ops->copy(dev, some_rows(all, ATTENTION_TILE + far, own),
                                  values ? f->a->v : f->a->k));
    }
    return ALIBI_OK;
}

alibi_status sequence_fetch(struct sequence *s, struct attention_args *a, int64_t sinks,
                            struct tensor first[2])
{
    struct fetch f = { .s = s, .a = a, .sinks = sinks };
    int64_t Hkv = a->k.shape[2], tiles = attention_tiles(s->length), far;
    alibi_status status;

    if (s->size == 1)
        return ALIBI_OK;
    f.tiles = tiles_before(s, s->rank);
    f.most = (tiles + s->size - 1) / s->size;
    f.words = attention_kept_words(s->length);
    f.G = a->bias.kind == BIAS_GATE ? a->bias.values.shape[2] : 0;
    TRY(agree(s, prepare(&f)));
    TRY(comm_collect(s->comm, f.norms, (size_t)(Hkv * f.most) * sizeof *f.norms));
    if (f.G > 0)
        TRY(comm_collect(s->comm, f.gates, (size_t)(2 * f.G * part_room(&f)) * sizeof *f.gates));
    TRY(agree(s, choose(&f)));
    TRY(comm_collect(s->comm, f.needed, (size_t)(Hkv * f.words) * sizeof *f.needed));
    status = fill_gaps(&f); /* a failure of the device: the others wait for what it sends */
    TRY(pass_tiles(&f, status));
    if (a->q.shape[1] == 0 || f.tiles == 0)
        goto out;
    for (int values = 0; values < 2 && sinks > 0; values++)
        first[values] = some_rows(gathered(&f, values), gathered_row(&f, 0), sinks);
    far = (f.tiles - f.from) * ATTENTION_TILE;
    if (may_skip(&f))
        a->skip.eps /= 2;
    if (far > 0) {
        a->k = some_rows(gathered(&f, false), ATTENTION_TILE, far + a->q.shape[1]);
        a->v = some_rows(gathered(&f, true), ATTENTION_TILE, far + a->q.shape[1]);
        if (f.G > 0)
            a->bias.values =
                tensor_4(s->gates, a->bias.values.type, 2, 1, f.G, far + a->q.shape[1]);
    }
out:
    fetch_free(&f);
    return status;
}
