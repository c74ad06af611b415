/* mapping.c - the tensors of one program under the names and in the layout of another
 *
 * A rule of a family says that a tensor of theirs holds a part of the rows of a parameter of ours,
 * in another order or transposed. Both directions are sources built on another source: rows are
 * read from it on demand, in runs. Only a transposed matrix is read as a whole. */
#include <string.h>

#include "exchange/exchange.h"

enum { NAME_BYTES = 192, RULES_MAX = 8 };

/* A tensor of theirs that holds rows of a parameter of ours. */
struct piece {
    const struct tensor_rule *rule;
    int parameter;       /* of the outline */
    int theirs, ours;    /* in their sources; -1: not known */
    int64_t first, rows; /* rows of the parameter that the part has */
    bool transposed;
};

struct mapped {
    struct tensor_source base;
    struct tensor_source *from;
    const struct model *outline;
    struct piece *pieces;
    int piece_count;
    int *first_piece; /* as ours: [tensors + 1] */
    int current;      /* the tensor that `places` or `whole` belongs to; -1: none */
    struct row_place *places;
    float *whole; /* the matrix of the source that tensor `whole_of` is the transpose of */
    int whole_of;
};

/* Where a row of ours is. */
struct row_place {
    int piece;
    int64_t row;
};

static void free_mapped(struct tensor_source *s)
{
    struct mapped *m = (struct mapped *)s;

    for (int i = 0; i < s->count; i++)
        mem_free(s->tensors[i].name);
    mem_free(s->tensors);
    mem_free(m->pieces);
    mem_free(m->first_piece);
    mem_free(m->places);
    mem_free(m->whole);
    mem_free(m);
}

/* ---- names */

/* "blocks.12.norm1.weight": 12, and "blocks.*.norm1"; the end is ".weight" or ".bias". */
struct split_name {
    char stem[NAME_BYTES];
    const char *end;
    long layer;
};

static bool split(struct split_name *s, const char *name)
{
    const char *end = strrchr(name, '.');
    int bytes = end ? (int)(end - name) : 0, digits = 0;

    s->end = end;
    s->layer = -1;
    if (!end || (strcmp(end, ".weight") != 0 && strcmp(end, ".bias") != 0))
        return false;
    if (sscanf(name, "blocks.%ld%n", &s->layer, &digits) == 1)
        snprintf(s->stem, sizeof s->stem, "blocks.*%.*s", bytes - digits, name + digits);
    else
        snprintf(s->stem, sizeof s->stem, "%.*s", bytes, name);
    return true;
}

/* The pattern with the layer in place of "*", and the end. */
static void their_name(char out[NAME_BYTES], const struct tensor_rule *r,
                       const struct split_name *s)
{
    const char *star = strchr(r->theirs, '*');

    if (star)
        snprintf(out, NAME_BYTES, "%.*s%ld%s%s", (int)(star - r->theirs), r->theirs, s->layer,
                 star + 1, s->end);
    else
        snprintf(out, NAME_BYTES, "%s%s", r->theirs, s->end);
}

/* ---- the pieces of a parameter */

static void place_part(struct piece *p, const struct alibi_config *c, int64_t rows)
{
    int64_t D = c->width / c->heads, q = c->heads * D, kv = c->kv_heads * D;
    const int64_t first[] = { 0, 0, q, q + kv, 0, c->ff_width };
    const int64_t count[] = { rows, q, kv, kv, c->ff_width, c->ff_width };

    p->first = first[p->rule->part];
    p->rows = count[p->rule->part];
}

/* At most RULES_MAX; 0: the family has no place for the parameter. */
static int pieces_of(struct piece *out, const struct family *f, const struct model *m,
                     int parameter)
{
    const struct parameter *p = &m->parameters[parameter];
    struct split_name name;
    int count = 0;

    if (!split(&name, p->name))
        return 0;
    for (int i = 0; i < f->rule_count && count < RULES_MAX; i++) {
        const struct tensor_rule *r = &f->rules[i];
        if (strcmp(r->ours, name.stem) != 0)
            continue;
        out[count] = (struct piece){ .rule = r,
                                     .parameter = parameter,
                                     .theirs = -1,
                                     .ours = -1,
                                     .transposed = r->transposed && p->rank == 2 };
        place_part(&out[count++], &m->config, p->shape[0]);
    }
    return count;
}

static alibi_status no_place(const struct family *f, const char *name)
{
    return fail(ALIBI_BAD_INPUT, "the family '%s' has no place for '%s'", f->name, name);
}

/* Row `row` of their tensor, of which each is a row of ours, is this row of the parameter. */
static int64_t our_row(const struct mapped *m, const struct piece *p, int64_t row)
{
    return p->first + (p->rule->row ? p->rule->row(m->outline, row) : row);
}

/* ---- reading */

/* All of tensor `t` of the source: for a transposed matrix. */
static alibi_status read_whole(struct mapped *m, int t)
{
    const struct safetensor *from = &m->from->tensors[t];
    size_t count = 0;

    if (m->whole_of == t)
        return ALIBI_OK;
    m->whole_of = -1;
    mem_free(m->whole);
    m->whole = NULL;
    if (!size_product(&count, from->shape, from->rank) || count > INT64_MAX)
        return fail(ALIBI_MEMORY, "tensor '%s' does not fit", from->name);
    TRY_RETURN(NEW_ARRAY(&m->whole, (int64_t)count, from->name));
    TRY_RETURN(m->from->read(m->from, t, 0, from->shape[0], m->whole));
    m->whole_of = t;
    return ALIBI_OK;
}

/* Column `column` of a matrix of the source as a row. */
static alibi_status read_column(struct mapped *m, int t, int64_t column, float *values)
{
    const struct safetensor *from = &m->from->tensors[t];

    TRY_RETURN(read_whole(m, t));
    for (int64_t i = 0; i < from->shape[0]; i++)
        values[i] = m->whole[i * from->shape[1] + column];
    return ALIBI_OK;
}

/* Where the rows of a parameter are; each must be in exactly one piece. */
static alibi_status find_places(struct mapped *m, int tensor)
{
    const struct safetensor *t = &m->base.tensors[tensor];

    if (m->current == tensor)
        return ALIBI_OK;
    m->current = -1;
    mem_free(m->places);
    m->places = NULL;
    TRY_RETURN(NEW_ARRAY(&m->places, t->shape[0], "the rows of a tensor"));
    for (int64_t row = 0; row < t->shape[0]; row++)
        m->places[row].piece = -1;
    for (int i = m->first_piece[tensor]; i < m->first_piece[tensor + 1]; i++)
        for (int64_t row = 0; row < m->pieces[i].rows; row++) {
            int64_t at = our_row(m, &m->pieces[i], row);
            if (at < t->shape[0])
                m->places[at] = (struct row_place){ i, row };
        }
    for (int64_t row = 0; row < t->shape[0]; row++)
        if (m->places[row].piece < 0)
            return fail(ALIBI_BAD_INPUT, "no tensor holds row %lld of '%s'", (long long)row,
                        t->name);
    m->current = tensor;
    return ALIBI_OK;
}

static alibi_status read_as_ours(struct tensor_source *s, int tensor, int64_t row, int64_t rows,
                                 float *values)
{
    struct mapped *m = (struct mapped *)s;
    int64_t columns = tensor_source_columns(&s->tensors[tensor]), run;

    TRY_RETURN(find_places(m, tensor));
    for (int64_t end = row + rows; row < end; row += run, values += run * columns) {
        const struct row_place at = m->places[row];
        const struct piece *p = &m->pieces[at.piece];
        for (run = 1; row + run < end && m->places[row + run].piece == at.piece &&
                      m->places[row + run].row == at.row + run && !p->transposed;)
            run++;
        if (p->transposed)
            TRY_RETURN(read_column(m, p->theirs, at.row, values));
        else
            TRY_RETURN(m->from->read(m->from, p->theirs, at.row, run, values));
    }
    return ALIBI_OK;
}

static alibi_status read_as_theirs(struct tensor_source *s, int tensor, int64_t row, int64_t rows,
                                   float *values)
{
    struct mapped *m = (struct mapped *)s;
    const struct piece *p = &m->pieces[tensor];
    int64_t columns = tensor_source_columns(&s->tensors[tensor]), run;

    for (int64_t end = row + rows; row < end; row += run, values += run * columns) {
        int64_t at = p->transposed ? row : our_row(m, p, row);
        for (run = 1; row + run < end && !p->transposed && our_row(m, p, row + run) == at + run;)
            run++;
        if (p->transposed)
            TRY_RETURN(read_column(m, p->ours, at, values));
        else
            TRY_RETURN(m->from->read(m->from, p->ours, at, run, values));
    }
    return ALIBI_OK;
}

/* ---- making one */

static alibi_status new_mapped(struct mapped **out, struct tensor_source *from,
                               const struct model *outline)
{
    alibi_status status;
    struct mapped *m = NULL;
    int64_t most = (int64_t)outline->count * RULES_MAX;

    TRY(NEW_ZERO_ARRAY(&m, 1, "a list of tensors"));
    m->base.free = free_mapped;
    m->base.types = from->types;
    m->from = from;
    m->outline = outline;
    m->current = m->whole_of = -1;
    TRY(NEW_ZERO_ARRAY(&m->base.tensors, most, "a list of tensors"));
    TRY(NEW_ZERO_ARRAY(&m->pieces, most, "a list of tensors"));
    TRY(NEW_ZERO_ARRAY(&m->first_piece, outline->count + 1, "a list of tensors"));
    *out = m;
    m = NULL;
out:
    if (m)
        free_mapped(&m->base);
    return status;
}

/* A tensor of the new source, in the type of the one that it is made of. */
static alibi_status add_tensor(struct mapped *m, const char *name, int rank, int64_t rows,
                               int64_t columns, const char *type)
{
    struct safetensor *t = &m->base.tensors[m->base.count];

    *t = (struct safetensor){ .rank = rank, .shape = { rows, rank == 2 ? columns : 1 } };
    snprintf(t->type, sizeof t->type, "%s", weights_have_type(type) ? type : "F32");
    TRY_RETURN(text_copy(&t->name, name));
    m->base.count++;
    return ALIBI_OK;
}

static void shape_text(char out[64], int rank, const int64_t *shape)
{
    int used = 0;

    for (int i = 0; i < rank && used < 48; i++)
        used +=
            snprintf(out + used, 64 - (size_t)used, "%s%lld", i ? ", " : "", (long long)shape[i]);
}

static alibi_status check_theirs(const struct mapped *m, const struct piece *p)
{
    const struct safetensor *t = &m->from->tensors[p->theirs];
    const struct parameter *ours = &m->outline->parameters[p->parameter];
    int64_t wanted[2] = { p->rows, ours->shape[1] };
    char is[64] = "", should[64] = "";

    if (p->transposed) {
        wanted[0] = ours->shape[1];
        wanted[1] = p->rows;
    }
    if (t->rank != ours->rank || t->shape[0] != wanted[0] ||
        (t->rank == 2 && t->shape[1] != wanted[1])) {
        shape_text(is, t->rank, t->shape);
        shape_text(should, ours->rank, wanted);
        return fail(ALIBI_BAD_INPUT, "tensor '%s' has shape [%s]; the configuration needs [%s]",
                    t->name, is, should);
    }
    if (!strstr(m->from->types, t->type))
        return fail(ALIBI_BAD_INPUT, "tensor '%s' has type %s; weights are read from %s", t->name,
                    t->type, m->from->types);
    return ALIBI_OK;
}

/* The tensor of that name; files may omit the family's prefix. */
static int find_theirs(const struct tensor_source *theirs, const struct family *f, const char *name)
{
    size_t prefix = f->prefix ? strlen(f->prefix) : 0;
    int at = tensor_source_find(theirs, name, 0);

    if (at < 0 && prefix > 0 && strncmp(name, f->prefix, prefix) == 0)
        at = tensor_source_find(theirs, name + prefix, 0);
    return at;
}

/* Finds the pieces of a parameter among the tensors of theirs, and adds the parameter. */
static alibi_status add_ours(struct mapped *m, const struct family *f, int parameter, bool *used)
{
    const struct parameter *ours = &m->outline->parameters[parameter];
    struct piece *p = &m->pieces[m->piece_count];
    int count = pieces_of(p, f, m->outline, parameter);
    const char *type = NULL;
    struct split_name name;
    char theirs[NAME_BYTES];

    if (count == 0)
        return no_place(f, ours->name);
    split(&name, ours->name);
    for (int i = 0; i < count; i++) {
        their_name(theirs, p[i].rule, &name);
        p[i].theirs = find_theirs(m->from, f, theirs);
        if (p[i].theirs < 0)
            return fail(ALIBI_BAD_INPUT, "there is no tensor '%s', which the configuration needs",
                        theirs);
        TRY_RETURN(check_theirs(m, &p[i]));
        used[p[i].theirs] = true;
        if (type && strcmp(type, m->from->tensors[p[i].theirs].type) != 0)
            type = "F32";
        else
            type = m->from->tensors[p[i].theirs].type;
    }
    m->first_piece[parameter] = m->piece_count;
    m->piece_count += count;
    m->first_piece[parameter + 1] = m->piece_count;
    return add_tensor(m, ours->name, ours->rank, ours->shape[0], ours->shape[1], type);
}

/* A tied output layer may be in the file a second time. */
static bool is_ignored(const struct family *f, const struct alibi_config *c, const char *name)
{
    char head[NAME_BYTES];

    for (const char *const *end = f->ignored; end && *end; end++)
        if (ends_with(name, *end))
            return true;
    for (int i = 0; c->tied && i < f->rule_count; i++) {
        snprintf(head, sizeof head, "%s.weight", f->rules[i].theirs);
        if (strcmp(f->rules[i].ours, "head") == 0 && strcmp(name, head) == 0)
            return true;
    }
    return false;
}

alibi_status tensors_as_ours(struct tensor_source **out, struct tensor_source *theirs,
                             const struct family *f, const struct model *outline)
{
    alibi_status status;
    struct mapped *m = NULL;
    bool *used = NULL;

    TRY(new_mapped(&m, theirs, outline));
    m->base.read = read_as_ours;
    TRY(NEW_ZERO_ARRAY(&used, theirs->count, "a list of tensors"));
    for (int i = 0; i < outline->count; i++)
        TRY(add_ours(m, f, i, used));
    for (int i = 0; i < theirs->count; i++)
        if (!used[i] && !is_ignored(f, &outline->config, theirs->tensors[i].name))
            TRY(fail(ALIBI_BAD_INPUT,
                     "tensor '%s' has no place in a model of family '%s' with this configuration",
                     theirs->tensors[i].name, f->name));
    *out = &m->base;
    m = NULL;
out:
    mem_free(used);
    if (m)
        free_mapped(&m->base);
    return status;
}

static alibi_status add_theirs(struct mapped *m, const struct family *f, int parameter)
{
    const struct parameter *ours = &m->outline->parameters[parameter];
    struct piece *p = &m->pieces[m->piece_count];
    int count = pieces_of(p, f, m->outline, parameter);
    int at = tensor_source_find(m->from, ours->name, parameter);
    struct split_name name;
    char theirs[NAME_BYTES];

    if (count == 0)
        return no_place(f, ours->name);
    if (at < 0)
        return fail(ALIBI_BAD_INPUT, "there is no tensor '%s'", ours->name);
    split(&name, ours->name);
    for (int i = 0; i < count; i++) {
        their_name(theirs, p[i].rule, &name);
        p[i].ours = at;
        TRY_RETURN(add_tensor(m, theirs, ours->rank, p[i].transposed ? ours->shape[1] : p[i].rows,
                              p[i].transposed ? p[i].rows : ours->shape[1],
                              m->from->tensors[at].type));
        m->piece_count++;
    }
    return ALIBI_OK;
}

alibi_status tensors_as_theirs(struct tensor_source **out, struct tensor_source *ours,
                               const struct family *f, const struct model *outline)
{
    alibi_status status;
    struct mapped *m = NULL;

    TRY(new_mapped(&m, ours, outline));
    m->base.read = read_as_theirs;
    for (int i = 0; i < outline->count; i++)
        TRY(add_theirs(m, f, i));
    *out = &m->base;
    m = NULL;
out:
    if (m)
        free_mapped(&m->base);
    return status;
}
