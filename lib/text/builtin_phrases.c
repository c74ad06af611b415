/* builtin_phrases.c - the parts that sentences of the built-in text are made of, and the sentences
 * that tell no fact
 *
 * {A} is a person, {X} and {Y} are places; see builtin_world.c. */
#include "text/builtin.h"

/* ---- phrases */

static const char *const np[] = {
    "the {look} {tool}",
    "the {tool}",
    "{an} {look} {tool}",
    "the {tool.s}",
    "{an} {stuff} {tool}",
    "the {tool} by the {part}",
    "{few} {look} {tool.s}",
    "the {look} {cloth}",
    "a sack of {goods}",
    "a basket of {crop.s}",
    "the last of the {food}",
    "the {goods}",
    "the {tool.s} from the {mark}",
    "{an} {tool} and {an} {tool}",
    "a barrel of {goods}",
    "{few} {crop.s}",
    "the {folk}'s {tool}",
    NULL,
};

static const char *const mark[] = { "{mark_start}{mark_end}", NULL };

static const char *const spot[] = {
    "the {land}",
    "the {lay} {land}",
    "the {mark}",
    "the {lay} {mark}",
    "the {land} below the {mark}",
    "the {tree.s} by the {land}",
    "the {X.house}",
    "the {part} of the {X.house}",
    "the {tree} at the {mark}",
    "the {built} {X.house}",
    NULL,
};

static const char *const where[] = {
    "by {spot}",
    "near {spot}",
    "behind {spot}",
    "beyond {spot}",
    "under the {tree.s}",
    "along {spot}",
    "at {spot}",
    "in the {X.house}",
    "on the other side of {spot}",
    "at the edge of {spot}",
    "not far from {X}",
    "between {spot} and {spot}",
    "among the {plant}",
    "across {spot}",
    "on the way to {Y}",
    "opposite {spot}",
    NULL,
};

static const char *const when[] = {
    "in the morning",
    "that evening",
    "the next day",
    "before noon",
    "{few} days later",
    "at dusk",
    "on {day}",
    "late in {month}",
    "at first light",
    "on market day",
    "when the {weather} {drift.ed}",
    "that same night",
    "in the {nth} week of {month}",
    "all through the {season}",
    "at the end of the {season}",
    "after the {nth} bell",
    "by candlelight",
    "one {sky} {day}",
    "towards the end of {month}",
    "some time after supper",
    "on the {nth} of {month}",
    NULL,
};

static const char *const manner[] = {
    "{how}",
    "with {idea}",
    "without {idea}",
    "{how} and {how}",
    "with more {idea} than {idea}",
    "like {an} {mood} {folk}",
    "as {mood} as {an} {beast}",
    "for an hour",
    "in the {sky} {weather}",
    "until the {weather} {drift.ed}",
    NULL,
};

static const char *const who[] = {
    "{an} {folk}",          "the {folk}",          "{an} {mood} {folk}",    "the {mood} {folk}",
    "{an} {folk} from {Y}", "the {folk}'s {folk}", "{an} {trade} from {Y}", NULL,
};

static const char *const crowd[] = {
    "the {folk.s}",        "the {folk.s} of {X}", "{few} {folk.s}",
    "the {mood} {folk.s}", "the {beast.s}",       NULL,
};

/* ---- sentences that only fill the country: nothing in them is needed again */

static const char *const outdoors[] = {
    "^the {weather} {drift.ed} over {spot}, and the {weather} {drift.ed} {where}.",
    "^{when} the {weather} {drift.ed} {where}.",
    "^it was {an} {sky} {season} day, and {spot} smelled of {goods} and {plant}.",
    "^the {beast.s} {rest.ed} {where}, and {an} {beast} {rest.ed} {where}.",
    "^beyond {spot} the {weather} {drift.ed} {how}, as it {often} did in {month}.",
    "^there was {weather} {where} and {plant} {where}.",
    "^{an} {look} {beast} {go.ed} along {spot} and {rest.ed} under the {tree.s}.",
    "^from {spot} one could see {spot}, {spot} and, on {sky} days, the {land} at {Y}.",
    "^the {land} lay {sky} and {sky} below the {mark}, and nobody {go.ed} there but {crowd}.",
    "^{plant} grew {where}; {plant} grew {where}; between them ran the {lay} {land}.",
    "^the {season} had been {sky}, and the {crop.s} were {look} and few.",
    "^the {tree.s} {drift.ed} in the {sky} {weather}.",
    "^{an} {beast} was {rest.ing} {where}, and the {weather} went on {drift.ing}.",
    "^all the way from {X} to {Y} the {tree.s} stood {sky} and {sky} in the {weather}.",
    "^{few} {beast.s} came {go.ing} out of {spot}.",
    NULL,
};

static const char *const deed[] = {
    "^{a} {handle.ed} {np} and {handle.ed} {np} {where}.",
    "^{when} {a} {handle.ed} {np}.",
    "^{A.he} {rest.ed} {manner} and {handle.ed} {np}.",
    "^{a} {go.ed} to {spot}, where {who} {rest.ed} {manner}.",
    "^{when} {A.he} {handle.ed} {np} that {who} had left {where}.",
    "^with {an} {tool} under {A.his} arm {A.he} {go.ed} along {spot} and {rest.ed}.",
    "^there was {food} and {food} for supper, and {a} {rest.ed} {manner}.",
    "^{A.he} {think.ed} that {who} {handle.ed} {np}, but said nothing.",
    "^{who} {handle.ed} {np} for {A.him}, {manner}.",
    "^{a} wore {A.trait} and {handle.ed} {np} {manner}.",
    "^{A.pet} the {A.beast} {rest.ed} {where} while {a} {handle.ed} {np}.",
    "^nobody {handle.s} {np} as {how} as {a}.",
    "^once before, {when}, {A.he} {handle.ed} {np} and found only {np}.",
    "^every {day} {a} {handle.s} the {tool.s}, and every {day} {who} {handle.s} them again.",
    "^{A.his} {body} ached, and {A.he} {rest.ed} {manner}.",
    "^while {who} was {handle.ing} {np}, {a} {rest.ed} {manner}.",
    "^{A.pet} was {rest.ing} {where} when {a} came {go.ing} home with {np}.",
    "^{a} spent the {season} {handle.ing} {np} and {handle.ing} {np}.",
    NULL,
};

static const char *const remark[] = {
    "^it is {an} {sort} {matter}, and {an} {sort} {matter} wants {idea}.",
    "^{idea} is worth more than {goods}, and {goods} is worth more than {idea}.",
    "^some called it {idea}; others called it {idea}; {who} called it {an} {sort} {matter}.",
    "^there is no {matter} without {idea} and no {tool} without {an} {matter}.",
    "^{an} {matter} is like {an} {look} {tool}: one {handle.s} it {how} or not at all.",
    "^so it goes with {matter.s}: {crowd} make them, and {crowd} {handle} them.",
    "^of {idea} there was enough in {X}; of {food} there was not.",
    "^it was {an} {sort} {matter} in {X}, and the {folk.s} told it {manner}.",
    "^{mood} people {rest}, {mood} people {go}, and {crowd} do both.",
    NULL,
};

static const char *const remark_short[] = {
    "{who} wrote it down.", "{matter.s} pass.", "{idea} came of it.", "{crowd} were content.", NULL,
};

static const char *const small_talk[] = {
    "the {beast.s} are {mood} this {season}",
    "I have {food} at home and no {food}",
    "my {body} tells me that the {weather} will {drift}",
    "never trust {an} {mood} {folk}",
    "they have {an} {sort} {matter} in {Y}, and {an} {sort} one here",
    "who {handle.s} {np} in {month} will {handle} {np} in {month}",
    "the {folk} is {handle.ing} {np} again",
    NULL,
};

/* ---- made once for a document, then repeated as they are; each fits into PHRASE_BYTES */

static const char *const saying_made[] = {
    "{an} {look} {tool} {handle.s} no {food}",
    "never lend {an} {tool} to {an} {folk} in {month}",
    "better {an} {look} {tool} than {an} {look} {beast}",
    "where the {beast} {rest.s}, the {goods} will keep",
    "{few} {folk.s} make {an} {matter}, {few} {beast.s} make a feast",
    "who {handle.s} {an} {tool} at night {handle.s} {idea} by day",
    "one {folk} knows the {land}, two know the {matter}",
    "{idea} first, {food} after",
    NULL,
};

static const char *const trait_made[] = {
    "{an} {look} {weave} {cloth}",        "{an} {look} {cloth} with {stuff} buttons",
    "{an} {cloth} the colour of {goods}", "{an} {look} {cloth} and {an} {look} {cloth}",
    "{few} {look} {cloth.s} at once",     NULL,
};

static const char *const title[] = {
    "^the {X.house} at {X}",       "^{an} {season} in {X}",          "^the {sort} {matter} of {X}",
    "^{few} {tool.s} for {X}",     "^the {folk.s} of {X}",           "^the road from {X} to {Y}",
    "^what the {folk} saw in {X}", "{Y}, {X}, and the {lay} {land}", NULL,
};

#define RULE(name)                                                                                 \
    {                                                                                              \
#name, name                                                                                \
    }

const struct rule builtin_phrases[] = {
    RULE(np),
    RULE(mark),
    RULE(spot),
    RULE(where),
    RULE(when),
    RULE(manner),
    RULE(who),
    RULE(crowd),
    RULE(outdoors),
    RULE(deed),
    RULE(remark),
    RULE(remark_short),
    RULE(small_talk),
    RULE(saying_made),
    RULE(trait_made),
    RULE(title),
    { 0 },
};
