/* builtin_world.c - the people, places and things of one document, and what sentences can say about
 * them
 *
 * Facts are made when their person or place enters and stay as they are; only counts change, by
 * sentences that say so. Whom the next paragraph is about follows from how lately each was used,
 * with Zipf weights over that order: most facts come back soon, and some after thousands of words.
 * */
#include <stddef.h>
#include <string.h>

#include "text/builtin.h"

enum { FEWEST = 4, MOST = 40, MOST_MILES = 30, NAME_TRIES = 8 };

/* ---- how lately something was used */

static void touch(struct recency *r, int item)
{
    int at = 0;

    while (at < r->count && r->at[at] != item)
        at++;
    if (at == r->count)
        r->count++;
    memmove(r->at + 1, r->at, (size_t)at * sizeof r->at[0]);
    r->at[0] = item;
}

static int pick_lately(struct writer *w, const struct recency *r)
{
    return r->at[speech_draw_zipf(w, r->count)];
}

static int pick_long_ago(struct writer *w, const struct recency *r)
{
    return r->at[r->count - 1 - speech_draw_zipf(w, r->count)];
}

/* Lately used, and neither of the two if there are others. */
static int pick_other(struct writer *w, const struct recency *r, int not_this, int nor_this)
{
    int rank = speech_draw_zipf(w, r->count);

    for (int tries = 0; tries < r->count; tries++, rank = (rank + 1) % r->count)
        if (r->at[rank] != not_this && r->at[rank] != nor_this)
            break;
    return r->at[rank];
}

/* ---- what comes into the world */

void world_begin(struct writer *w)
{
    memset(&w->world, 0, sizeof w->world);
    memset(&w->scene, 0, sizeof w->scene);
    for (int i = 0; i < SAYINGS; i++)
        speech_compose(w, w->world.sayings[i], PHRASE_BYTES, "{saying_made}");
}

/* Is the text of item i also that of an earlier item? Items are `stride` bytes apart. */
static bool is_taken(const char *first, size_t stride, int i)
{
    for (int k = 0; k < i; k++)
        if (strcmp(first + (size_t)k * stride, first + (size_t)i * stride) == 0)
            return true;
    return false;
}

/* Composes a text of item i that no earlier item has, unless chance is very unkind. */
static void compose_anew(struct writer *w, char *first, size_t stride, int i, size_t size,
                         const char *template)
{
    for (int tries = 0; tries == 0 || (tries < NAME_TRIES && is_taken(first, stride, i)); tries++)
        speech_compose(w, first + (size_t)i * stride, size, template);
}

void world_add_place(struct writer *w)
{
    struct world *world = &w->world;
    int i = world->known_places.count;
    struct town *p = &world->places[i];

    compose_anew(w, world->places[0].name, sizeof *p, i, NAME_BYTES, "^{place_start}{place_end}");
    speech_compose(w, p->house, NAME_BYTES, "{building}");
    speech_compose(w, p->look, NAME_BYTES, "{lay}");
    speech_compose(w, p->password, PHRASE_BYTES, "{stuff} {tool}");
    for (int k = 0; k < i; k++)
        p->miles[k] = 2 + speech_draw_below(w, MOST_MILES - 1);
    touch(&world->known_places, i);
    w->scene.x = i;
    w->scene.saying = speech_draw_below(w, SAYINGS);
    w->scene.y = pick_other(w, &world->known_places, i, i);
}

static int new_holding(struct writer *w, int owner, int place)
{
    struct world *world = &w->world;
    int i = world->known_holdings.count;
    struct holding *h = &world->holdings[i];

    for (int tries = 0;
         tries == 0 || (tries < NAME_TRIES && is_taken(world->holdings[0].things, sizeof *h, i));
         tries++)
        speech_compose_pair(w, h->thing, h->things, PHRASE_BYTES, "{stuff} {tool}",
                            "{stuff} {tool.s}");
    h->owner = owner;
    h->place = place;
    h->count = FEWEST + speech_draw_below(w, MOST - FEWEST + 1);
    touch(&world->known_holdings, i);
    return i;
}

/* Some are kin of someone known, and have that one's last name. */
static void name_person(struct writer *w, int i)
{
    struct world *world = &w->world;
    struct person *p = &world->people[i];

    p->woman = speech_draw_chance(w, 50);
    p->kin = i > 0 && speech_draw_chance(w, 35) ? speech_draw_below(w, i) : -1;
    compose_anew(w, world->people[0].first, sizeof *p, i, NAME_BYTES,
                 p->woman ? "^{first_start}{woman_end}" : "^{first_start}{man_end}");
    if (p->kin >= 0)
        memcpy(p->last, world->people[p->kin].last, NAME_BYTES);
    else
        speech_compose(w, p->last, NAME_BYTES, "^{last_start}{last_end}");
}

static void set_scene(struct writer *w, int holding)
{
    struct world *world = &w->world;
    struct scene *s = &w->scene;

    s->h = holding;
    s->a = world->holdings[holding].owner;
    s->x = world->holdings[holding].place;
    s->b = pick_other(w, &world->known_people, s->a, s->a);
    s->c = pick_other(w, &world->known_people, s->a, s->b);
    s->y = pick_other(w, &world->known_places, s->x, s->x);
    s->saying = speech_draw_zipf(w, SAYINGS);
    s->g = s->h;
    for (int i = world->known_holdings.count - 1; i >= 0; i--)
        if (world->holdings[world->known_holdings.at[i]].owner == s->b)
            s->g = world->known_holdings.at[i];
    touch(&world->known_people, s->b);
    touch(&world->known_people, s->a);
    touch(&world->known_places, s->x);
    touch(&world->known_holdings, s->h);
}

void world_add_person(struct writer *w)
{
    struct world *world = &w->world;
    int i = world->known_people.count;
    struct person *p = &world->people[i];

    name_person(w, i);
    p->home = pick_lately(w, &world->known_places);
    speech_compose(w, p->trade, NAME_BYTES, "{trade}");
    speech_compose(w, p->beast, NAME_BYTES, "{companion}");
    compose_anew(w, world->people[0].pet, sizeof *p, i, NAME_BYTES, "{pet}");
    speech_compose(w, p->trait, PHRASE_BYTES, "{trait_made}");
    touch(&world->known_people, i);
    set_scene(w, new_holding(w, i, p->home));
}

void world_add_holding(struct writer *w)
{
    struct world *world = &w->world;
    int owner = w->scene.a;

    set_scene(w, new_holding(w, owner,
                             pick_other(w, &world->known_places, world->people[owner].home, -1)));
}

void world_cast_lately(struct writer *w)
{
    set_scene(w, pick_lately(w, &w->world.known_holdings));
}

void world_cast_long_ago(struct writer *w)
{
    set_scene(w, pick_long_ago(w, &w->world.known_holdings));
}

void world_cast_oldest(struct writer *w)
{
    set_scene(w, w->world.known_holdings.at[w->world.known_holdings.count - 1]);
}

/* ---- counts that change */

static void change(struct writer *w, struct holding *h, int by)
{
    w->scene.before = h->count;
    w->scene.moved = by < 0 ? -by : by;
    h->count += by;
}

/* At least FEWEST stay. */
static int some_of(struct writer *w, const struct holding *h)
{
    int most = h->count - FEWEST;

    return 2 + speech_draw_below(w, most < 9 ? most - 1 : 8);
}

/* What b has of the things of h, or -1. */
static int holding_of_b(const struct writer *w)
{
    const struct world *world = &w->world;
    const struct holding *h = &world->holdings[w->scene.h];

    for (int i = 0; i < world->known_holdings.count; i++)
        if (world->holdings[i].owner == w->scene.b &&
            strcmp(world->holdings[i].things, h->things) == 0)
            return i;
    return -1;
}

static int new_holding_of_b(struct writer *w)
{
    struct world *world = &w->world;
    int i = world->known_holdings.count;

    world->holdings[i] = world->holdings[w->scene.h];
    world->holdings[i].owner = w->scene.b;
    world->holdings[i].place = world->people[w->scene.b].home;
    world->holdings[i].count = 0;
    return i;
}

/* Keeps two free for each person who is yet to come. */
static bool room_for_holding(const struct world *world)
{
    return world->known_holdings.count < 2 * world->known_people.count + SPARE_HOLDINGS;
}

bool world_give(struct writer *w)
{
    struct world *world = &w->world;
    struct holding *h = &world->holdings[w->scene.h];
    int g = holding_of_b(w);

    if (w->scene.a == w->scene.b || h->count < FEWEST + 2 || !speech_draw_chance(w, 60))
        return false;
    if (g >= 0 ? world->holdings[g].count > MOST : !room_for_holding(world))
        return false;
    w->scene.g = g >= 0 ? g : new_holding_of_b(w);
    change(w, h, -some_of(w, h));
    world->holdings[w->scene.g].count += w->scene.moved;
    touch(&world->known_holdings, w->scene.g);
    return true;
}

bool world_lose(struct writer *w)
{
    struct holding *h = &w->world.holdings[w->scene.h];

    if (h->count < FEWEST + 2 || !speech_draw_chance(w, h->count > MOST ? 100 : 40))
        return false;
    change(w, h, -some_of(w, h));
    return true;
}

bool world_find(struct writer *w)
{
    struct holding *h = &w->world.holdings[w->scene.h];

    if (h->count > MOST)
        return false;
    change(w, h, 2 + speech_draw_below(w, 8));
    return true;
}

/* ---- what templates call by name */

struct field {
    const char *name;
    size_t offset; /* of the text in its struct */
};

static const struct field person_fields[] = {
    { "first", offsetof(struct person, first) },
    { "last", offsetof(struct person, last) },
    { "trade", offsetof(struct person, trade) },
    { "beast", offsetof(struct person, beast) },
    { "pet", offsetof(struct person, pet) },
    { "trait", offsetof(struct person, trait) },
    { 0 },
};

static const struct field place_fields[] = {
    { "", offsetof(struct town, name) },
    { "house", offsetof(struct town, house) },
    { "look", offsetof(struct town, look) },
    { "password", offsetof(struct town, password) },
    { 0 },
};

static const struct field holding_fields[] = {
    { "thing", offsetof(struct holding, thing) },
    { "things", offsetof(struct holding, things) },
    { 0 },
};

static bool is(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && memcmp(name, text, length) == 0;
}

static bool put_field(struct writer *w, const void *from, const struct field *fields,
                      const char *name, size_t length)
{
    for (; fields->name != NULL; fields++) {
        if (is(fields->name, name, length)) {
            speech_put_text(w, (const char *)from + fields->offset);
            return true;
        }
    }
    return false;
}

static void put_full_name(struct writer *w, int person)
{
    const struct person *p = &w->world.people[person];

    speech_put_text(w, p->first);
    speech_put_text(w, " ");
    speech_put_text(w, p->last);
    w->scene.named |= 1u << person;
}

/* In full at first; then as people do. */
static void mention(struct writer *w, int person)
{
    const struct person *p = &w->world.people[person];

    if ((w->scene.named >> person & 1) == 0 || speech_draw_chance(w, 35)) {
        put_full_name(w, person);
    } else if (speech_draw_chance(w, 85)) {
        speech_put_text(w, p->first);
    } else {
        speech_put_text(w, "the ");
        speech_put_text(w, p->trade);
    }
}

/* {A.he}, {A.him}, {A.his}: the pronoun, or the name where the paragraph has not given it yet. */
static bool put_pronoun(struct writer *w, int person, const char *name, size_t length)
{
    bool is_named = (w->scene.named >> person & 1) != 0;
    bool he = is("he", name, length), his = is("his", name, length);

    if (!he && !his && !is("him", name, length))
        return false;
    if (!is_named) {
        put_full_name(w, person);
        speech_put_text(w, his ? "'s" : "");
    } else if (w->world.people[person].woman) {
        speech_put_text(w, he ? "she" : "her");
    } else {
        speech_put(w, name, length);
    }
    return true;
}

static bool say_person(struct writer *w, int person, const char *name, size_t length)
{
    const struct person *p = &w->world.people[person];

    if (length == 0)
        put_full_name(w, person);
    else if (is("home", name, length))
        speech_put_text(w, w->world.places[p->home].name);
    else if (is("kin", name, length))
        speech_put_text(w, p->woman ? "sister" : "brother");
    else if (is("kin_name", name, length))
        put_full_name(w, p->kin);
    else
        return put_pronoun(w, person, name, length) || put_field(w, p, person_fields, name, length);
    return true;
}

static bool say_holding(struct writer *w, int holding, const char *name, size_t length)
{
    const struct holding *h = &w->world.holdings[holding];
    const struct town *p = &w->world.places[h->place];

    if (is("count", name, length)) {
        speech_put_number(w, h->count);
        return true;
    }
    if (!is("at", name, length))
        return put_field(w, h, holding_fields, name, length);
    speech_put_text(w, "the ");
    speech_put_text(w, p->house);
    speech_put_text(w, " at ");
    speech_put_text(w, p->name);
    return true;
}

static int miles(const struct world *world, int x, int y)
{
    return x > y ? world->places[x].miles[y] : world->places[y].miles[x];
}

static bool say_plain(struct writer *w, const char *name, size_t length)
{
    const struct scene *s = &w->scene;

    if (is("saying", name, length))
        speech_put_text(w, w->world.sayings[s->saying]);
    else if (is("moved", name, length))
        speech_put_number(w, s->moved);
    else if (is("before", name, length))
        speech_put_number(w, s->before);
    else if (is("miles", name, length))
        speech_put_number(w, miles(&w->world, s->x, s->y));
    else
        return false;
    return true;
}

bool world_say(struct writer *w, const char *name, size_t length)
{
    const struct scene *s = &w->scene;
    const char *field = length > 1 ? name + 2 : name + 1;
    size_t rest = length > 1 ? length - 2 : 0;

    if (length > 1 && name[1] != '.')
        return say_plain(w, name, length);
    switch (name[0]) {
    case 'a':
    case 'b':
    case 'c':
        mention(w, name[0] == 'a' ? s->a : name[0] == 'b' ? s->b : s->c);
        return true;
    case 'A':
        return say_person(w, s->a, field, rest);
    case 'B':
        return say_person(w, s->b, field, rest);
    case 'C':
        return say_person(w, s->c, field, rest);
    case 'X':
        return put_field(w, &w->world.places[s->x], place_fields, field, rest);
    case 'Y':
        return put_field(w, &w->world.places[s->y], place_fields, field, rest);
    case 'H':
        return say_holding(w, s->h, field, rest);
    case 'G':
        return say_holding(w, s->g, field, rest);
    default:
        return false;
    }
}
