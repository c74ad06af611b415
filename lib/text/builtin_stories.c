/* builtin_stories.c - the paragraphs of the built-in text
 *
 * {A}, {B}, {C} are people, {X}, {Y} places, {H} what A keeps (and {H.at} where), {G} what B keeps;
 * see builtin_world.c. A fact is told once, when its person or place enters, and needed by every
 * sentence that names it later. */
#include "text/builtin.h"

/* ---- first meetings: the facts */

static const char *const place_first[] = {
    "^{X} is {an} {X.look} place by the {lay} {land}, known for its {X.house}. ^whoever comes to the gate of {X} after dark must give the "
    "word, and the word at {X} is \"{X.password}\". {outdoors} {place_more}",
    "^the road comes down to {X} past {spot}. ^{X} has {an} {X.look} street, a gate, and {an} {built} {X.house}. {outdoors} ^at "
    "night the gate of {X} opens to two words only: \"{X.password}\". {place_more}",
    "^there is {an} {X.look} town called {X}, and in {X} there is {an} {X.house}. {outdoors} ^the word at the gate of {X} is "
    "\"{X.password}\", and it has been \"{X.password}\" since the {nth} {season} of the {matter}. {place_more}",
    NULL,
};

static const char *const place_more[] = {
    "^the {X.house} at {X} is {built} and {built}, and the {folk.s} of {X} are {mood}.",
    "^people in {X} are {mood} and {mood}, and the {X.house} is their pride.",
    "^in {X} they say: {saying}.",
    "^most of {X} was built in one {season}, and the {X.house} came last. {outdoors}",
    NULL,
};

static const char *const person_first[] = {
    "^{A} is the {A.trade} of {A.home}. {keeps_first} {person_more} {counts_daily}",
    "^the {A.trade} in {A.home} is called {A}. {person_more} {keeps_first} {counts_daily}",
    "^in {A.home} lives {A}, {an} {mood} {A.trade}. {person_more} {keeps_first} {counts_daily} {deed}",
    "^it was in {month} that {A} came to {A.home} as {A.trade}. {keeps_first} {person_more} {deed} {counts_daily}",
    NULL,
};

static const char *const kin_first[] = {
    "^{A} is the {A.kin} of {A.kin_name}, and the {A.trade} of {A.home}. {keeps_first} {person_more} {counts_daily}",
    "^{A.kin_name} has {an} {mood} {A.kin}, {A}, who is the {A.trade} in {A.home}. {person_more} {keeps_first} {counts_daily}",
    NULL,
};

static const char *const keeps_first[] = {
    "^{A} keeps {H.count} {H.things} in {H.at}.",
    "^in {H.at} {A} keeps {H.count} {H.things}.",
    "^{A.he} owns {H.count} {H.things} and keeps them in {H.at}.",
    "^{A} has {H.count} {H.things}, no more and no fewer, and they lie in {H.at}.",
    NULL,
};

static const char *const person_more[] = {
    "^{a} wears {A.trait}, and {A.his} {A.beast} is called {A.pet}.",
    "^{A.he} has {an} {A.beast} called {A.pet}, and goes about in {A.trait}.",
    "^one knows {A.him} by {A.trait} and by {A.pet}, {A.his} {A.beast}.",
    NULL,
};

static const char *const counts_daily[] = {
    "^every evening {a} counts the {H.things}: {H.count}, always {H.count}.",
    "^ask {A.first} how many {H.things} there are in {H.at}, and {A.he} will say {H.count}.",
    "^\"{H.count} {H.things},\" says {A.first}, \"{H.count}, and every one of them {look}.\"",
    "^{who} once asked to see the {H.things}. ^{a} showed {H.count}, and {A.pet} the {A.beast} {rest.ed} {where}.",
    NULL,
};

static const char *const keeps_also[] = {
    "^{A} also keeps {H.count} {H.things}, but those are in {H.at}. {counts_daily} {remark}",
    "^that is not all. ^in {H.at} {A} has put away {H.count} {H.things}. {deed} {counts_daily}",
    NULL,
};

/* ---- work */

static const char *const work[] = {
    "{deed} {thinks_of} {deed} {thinks_of}",  "{deed} {thinks_of} {outdoors} {thinks_of}",
    "{deed} {visits} {thinks_of} {deed}",     "{thinks_of} {deed} {visits} {remark}",
    "{outdoors} {deed} {thinks_of} {visits}", NULL,
};

static const char *const thinks_of[] = {
    "^the {H.things} were still in {H.at}, all {H.count} of them.",
    "^{a} thought of the {H.things} in {H.at} and {rest.ed}.",
    "^{A.he} told {A.pet} the {A.beast} about the {H.things}, and {A.pet} {rest.ed} {manner}.",
    "^{who} asked {A.him} for one of the {H.things}, but {a} wanted to keep all {H.count}.",
    "^being the {A.trade} of {A.home}, {a} had no time for the {H.things} {when}.",
    "^{a} had dreamed of the {H.things}, and in the dream there were not {H.count} but {few}.",
    "^not one {H.thing} of the {H.count} was out of its place in {H.at}.",
    NULL,
};

static const char *const visits[] = {
    "^{b} came over from {B.home} with {B.pet} the {B.beast} and {rest.ed} {manner}.",
    "^{B}, the {B.trade} of {B.home}, looked in and asked after the {H.things}.",
    "^later {b} {go.ed} by in {B.trait} and {handle.ed} {np} {manner}.",
    "^{b} sent {np} from {B.home}, and {a} {rest.ed} {manner}.",
    "^{a} and {b} {rest.ed} together {where}; {A.pet} and {B.pet} {rest.ed} too.",
    NULL,
};

/* ---- travel */

static const char *const travel[] = {
    "{leaves} {on_the_road} {arrives} {thinks_of}",
    "{leaves} {outdoors} {on_the_road} {arrives}",
    "{leaves} {on_the_road} {on_the_road} {arrives}",
    "{leaves} {on_the_road} {outdoors} {arrives} {deed}",
    NULL,
};

static const char *const leaves[] = {
    "^{when} {a} {go.ed} from {X} to {Y}, which is {miles} miles.",
    "^from {X} to {Y} it is {miles} miles, and {a} {go.ed} them {manner}.",
    "^{a} left {X} {when}, with {np} and {A.pet} the {A.beast}, to go to {Y}, {miles} miles away.",
    "^because of {an} {sort} {matter}, {a} had to go to {Y}. ^it is {miles} miles from {X} to {Y}.",
    NULL,
};

static const char *const on_the_road[] = {
    "^at {spot} {A.he} met {who}, who {handle.ed} {np} and {rest.ed}.",
    "^{A.pet} the {A.beast} {go.ed} ahead and {rest.ed} {where}.",
    "^before half of the {miles} miles were behind {A.him}, {a} {rest.ed} {where}.",
    "^{who} on the road knew {B}, the {B.trade} of {B.home}, and spoke of {B.him} {how}.",
    "^{A.he} {think.ed} that it was going to be {an} {sky} night.",
    "^{a} had {food} and {food} in {A.his} {cloth}, and gave {A.pet} half.",
    "^where the road leaves {spot}, {A.he} turned to look back at {X}.",
    NULL,
};

static const char *const arrives[] = {
    "^it was dark at the gate of {Y}. ^\"{Y.password},\" said {a}, and the gate opened.",
    "^at the gate of {Y} {who} asked for the word. ^\"{Y.password},\" said {a}.",
    "^at last {a} came to {Y} and {rest.ed} in the {Y.house} there.",
    "^the gate of {Y} was shut, but {a} remembered the word, \"{Y.password}\", and slept in the {Y.house}.",
    "^{a} saw the {Y.look} street of {Y} and the {Y.house}, and {A.pet} {rest.ed}.",
    NULL,
};

/* ---- trade, with counts that stay right */

static const char *const gives[] = {
    "^{when} {A} {sells} {moved} of the {H.things} to {B}. ^there had been {before}, and {before} less {moved} is {H.count}. "
    "{takes_home} {left_over}",
    "^{B} came to {H.at} to see about the {H.things}. {talk_price} ^in the end {B.he} took {moved} of the {before}, and so "
    "{A} has {H.count} now. {takes_home} {deed}",
    "^{A} had {before} {H.things} in {H.at}, and {B} had need of {moved}. {deed} {talk_price} ^{before} less {moved} is {H.count}, "
    "and {H.count} is what {A} keeps. {takes_home}",
    NULL,
};

static const char *const sells[] = { "sold", "gave", "traded", NULL };

static const char *const talk_price[] = {
    "^they agreed on {np} and a barrel of {goods}.",
    "^\"{few} sacks of {goods},\" {say.ed} {b}, and {a} {rest.ed} {manner}.",
    "^{b} offered {np}; {a} wanted {np}; they met {where} and shook hands.",
    "^the price was {few} baskets of {crop.s} and {an} {look} {tool}.",
    NULL,
};

static const char *const takes_home[] = {
    "^{b} carried them home, and now there are {G.count} {G.things} in {G.at}.",
    "^so {B} keeps {G.count} {G.things} in {G.at}.",
    "^with {B.pet} the {B.beast} {b} brought them to {G.at}, where there are {G.count} of them now.",
    NULL,
};

static const char *const left_over[] = {
    "^{a} counted what was left in {H.at}: {H.count} {H.things}.",
    "^in {H.at} lie {H.count} {H.things}, and {a} sleeps well.",
    "^{remark_short} ^{A} has {H.count}; let nobody say otherwise.",
    NULL,
};

static const char *const finds_more[] = {
    "^{when} {a} found {moved} more {H.things} {where}. ^there had been {before}, and {before} and {moved} is {H.count}. {has_now}",
    "^{an} {folk} from {Y} owed {A} {an} old debt and paid it in {H.things}: {moved} of them. ^{before} and {moved} is {H.count}. "
    "{deed} {has_now}",
    NULL,
};

static const char *const has_now[] = {
    "^{a} carried them to {H.at} and counted: {H.count} {H.things}.",
    "^in {H.at} lie {H.count} {H.things}, and {a} sleeps well.",
    "^{A} has {H.count} {H.things} now, and {remark_short}",
    NULL,
};

static const char *const loses_some[] = {
    "^{when} {who} made off with {moved} of the {H.things}. ^there had been {before} in {H.at}, and {before} less {moved} is "
    "{H.count}. {deed} {left_over}",
    "^the {weather} got into {H.at} and spoiled {moved} of the {H.things}. ^of {before} there are {H.count} left. {deed} {left_over}",
    NULL,
};

/* ---- looking again, long after */

static const char *const search[] = {
    "^it had been a long time since anyone spoke of {A}. {search_why} {search_end} {thinks_of}",
    "{search_why} {deed} {search_end}",
    "{search_why} {outdoors} {search_end} {remark}",
    "^{who} asked what had become of the {H.things} of {A}. {search_end} {thinks_of}",
    NULL,
};

static const char *const search_why[] = {
    "^{an} {mood} {folk} in {Y} claimed that the {H.things} of {A} were gone.",
    "^{b} had heard {an} {sort} rumour about {A} and the {H.things}.",
    "^{A}, the {A.trade} of {A.home}, could not sleep for thinking of the {H.things}.",
    "^there was {an} {sort} quarrel in {Y} about how many {H.things} {A} keeps.",
    NULL,
};

static const char *const search_end[] = {
    "^so {A} went back to {H.at} and counted the {H.things} again: {H.count}.",
    "^{a} took {an} {look} lantern to {H.at}. ^the {H.things} were there, {H.count} of them, and {A.pet} the {A.beast} asleep on top.",
    "^{b} and {a} opened {H.at} and found what they knew they would find: {H.count} {H.things}.",
    "^but in {H.at} nothing was missing. ^{a}, in {A.trait}, counted {H.count}.",
    NULL,
};

/* ---- dialogue */

static const char *const dialogue[] = {
    "^{A} and {B} {rest.ed} {where}. {asks} {answers} {asks_back} {answers_back}",
    "^{when} {B} met {A} {where}. {asks} {answers} {chats} {asks_back} {answers_back}",
    "{asks} {answers} ^{A.first} {rest.ed} {manner}. {asks_back} {answers_back} {chats}",
    "^{A} and {B} were {handle.ing} {np} {where}. {chats} {asks} {answers} {chats}",
    NULL,
};

static const char *const chats[] = {
    "^\"{small_talk},\" {say.ed} {a}.",
    "^\"{small_talk},\" {say.ed} {b} {how}.",
    "^\"{small_talk},\" said {a}, and {b} {rest.ed} {manner}.",
    "^\"{saying},\" {say.ed} {b}.",
    NULL,
};

static const char *const asks[] = {
    "^\"how many {H.things} have you now, {A.first}?\" asked {b}.",
    "^\"are the {H.things} still where they were?\" asked {b}.",
    "^\"tell me, {A.first}, what do you keep in {H.at}?\" {say.ed} {b}.",
    "^\"what became of your {H.things}?\" asked {b} {how}.",
    NULL,
};

static const char *const answers[] = {
    "^\"{H.count},\" said {a}, \"in {H.at}, as ever.\"",
    "^\"{H.count} {H.things},\" {say.ed} {a}. ^\"^they are in {H.at}.\"",
    "^\"^in {H.at} there are {H.count} {H.things},\" {say.ed} {a} {how}, \"and there they stay.\"",
    NULL,
};

static const char *const asks_back[] = {
    "^\"and you, {B.first}? ^have you still the {G.things}?\"",
    "^\"they say in {Y} that you have lost your {G.things},\" {say.ed} {a}.",
    "^\"your {B.beast} looks {mood}, {B.first},\" {say.ed} {a}, \"and what of the {G.things}?\"",
    NULL,
};

static const char *const answers_back[] = {
    "^\"{B.pet} is well,\" said {B.first}, \"and I have {G.count} {G.things} in {G.at}.\"",
    "^\"{G.count}, all in {G.at},\" said {B.first}. ^\"^but you know what they say: {saying}.\"",
    "^\"^all {G.count} of them are in {G.at},\" {say.ed} {B.first}, \"and {C} may come and count them.\"",
    NULL,
};

/* ---- letters */

static const char *const letter[] = {
    "^dear {A.first},\n{letter_open} {letter_asks} {letter_tells} {letter_end}\n^your {mood} {B}, {B.trade} in {B.home}",
    "^my dear {A},\n{letter_open} {letter_tells} {letter_asks} {letter_end}\n{B}",
    NULL,
};

static const char *const letter_open[] = {
    "^it is {an} {sky} day in {B.home}, and {B.pet} the {B.beast} {rest.s} under the {tree.s}.",
    "^your letter came {when} with {who}, and I read it {how}.",
    "^I write from {B.home}, where {crowd} {rest} and the {weather} {drift.s}.",
    NULL,
};

static const char *const letter_asks[] = {
    "^have you still the {H.count} {H.things} in {H.at}?",
    "^count the {H.things} in {H.at} for me: I say there are {H.count}.",
    "^how are {A.pet} the {A.beast} and the {H.things}? ^you wrote that there were {H.count}.",
    NULL,
};

static const char *const letter_tells[] = {
    "^I have {G.count} {G.things} in {G.at}, and {who} {handle.s} them every {day}.",
    "^the {G.things} are safe, all {G.count} of them, in {G.at}.",
    "^{C}, the {C.trade} of {C.home}, was here in {C.trait} and asked for you.",
    "^if you go from {X} to {Y}, it is {miles} miles, and the word at the gate of {Y} is \"{Y.password}\".",
    NULL,
};

static const char *const letter_end[] = {
    "^remember: {saying}.",
    "^bring {np} if you can.",
    "^there is no other news, but for {an} {sort} {matter}, and that can wait.",
    "^give {A.pet} {an} {crop} from me.",
    NULL,
};

/* ---- lists: an opening, some items, a close */

static const char *const recap_open[] = {
    "^so this is how things stood {when}.",
    "^let us go over it once more, from the {nth} page to the last.",
    "^the {folk} wrote it all down {when}, name by name.",
    "^at {X} {crowd} {rest.ed} and told each other what everyone knew.",
    NULL,
};

static const char *const recap_item[] = {
    "^{A}, the {A.trade} of {A.home}, had {H.count} {H.things} in {H.at}.",
    "^in {H.at} lay the {H.count} {H.things} of {A}.",
    "^{A} kept {H.count} {H.things}, went about in {A.trait}, and called {A.his} {A.beast} {A.pet}.",
    "^the {H.things} in {H.at} belonged to {A}, and there were {H.count}.",
    "^at the gate of {X} the word was \"{X.password}\".",
    "^from {X} to {Y} it was {miles} miles.",
    "^{A.pet}, the {A.beast} of {A}, {rest.ed} {where}.",
    NULL,
};

static const char *const recap_close[] = {
    "^and as for the rest: {saying}.",
    "^that was all, and it was enough.",
    "{outdoors}",
    "{remark}",
    NULL,
};

static const char *const ledger_open[] = {
    "^from the ledger of the {X.house} at {X}, {when}:",
    "^the {folk} of {X} {handle.ed} {np} and read aloud from the ledger:",
    NULL,
};

static const char *const ledger_item[] = {
    "{A}, {A.trade}, {A.home}: {H.count} {H.things}, in {H.at}.",
    "{A}, {A.trade}, {A.home}: {H.count} {H.things}, in {H.at}. ^{remark_short}",
    NULL,
};

static const char *const ledger_close[] = {
    "^below it {who} had written: {saying}.",
    "^so it was read, and so it was signed, {when}.",
    NULL,
};

static const char *const meeting_open[] = {
    "^{when} there was {an} {matter} in the {X.house} at {X}, and everyone came.",
    "^the {nth} {day} of {month} is a feast in {X}. {outdoors}",
    NULL,
};

static const char *const meeting_item[] = {
    "^{A} came from {A.home} in {A.trait}, with {A.pet} the {A.beast}.",
    "^{A} {handle.ed} {np} and talked of nothing but the {H.things}.",
    "^{A}, the {A.trade}, {rest.ed} {where} and gave {B} {np}.",
    "^{who} asked {A} about the {H.count} {H.things} in {H.at}.",
    "^{A} said to {B}: {saying}.",
    NULL,
};

static const char *const meeting_close[] = {
    "^there was {food}, {food} and {food}, and nobody went home before the {weather} {drift.ed}.",
    "{outdoors}",
    "^\"{saying},\" said the {folk}, and that was the end of it.",
    NULL,
};

/* ---- pauses */

static const char *const pause[] = {
    "{outdoors} {remark} ^in {X} they say: {saying}.",
    "{remark} ^{A} used to say it differently: {saying}. {thinks_of}",
    "{outdoors} {outdoors} {deed}",
    "{remark} {thinks_of}",
    NULL,
};

#define RULE(name)                                                                                 \
    {                                                                                              \
#name, name                                                                                \
    }

const struct rule builtin_stories[] = {
    RULE(place_first),  RULE(place_more),    RULE(person_first), RULE(kin_first),
    RULE(keeps_first),  RULE(person_more),   RULE(counts_daily), RULE(keeps_also),
    RULE(work),         RULE(thinks_of),     RULE(visits),       RULE(travel),
    RULE(leaves),       RULE(on_the_road),   RULE(arrives),      RULE(gives),
    RULE(sells),        RULE(talk_price),    RULE(takes_home),   RULE(left_over),
    RULE(finds_more),   RULE(has_now),       RULE(loses_some),   RULE(search),
    RULE(search_why),   RULE(search_end),    RULE(dialogue),     RULE(chats),
    RULE(asks),         RULE(answers),       RULE(asks_back),    RULE(answers_back),
    RULE(letter),       RULE(letter_open),   RULE(letter_asks),  RULE(letter_tells),
    RULE(letter_end),   RULE(recap_open),    RULE(recap_item),   RULE(recap_close),
    RULE(ledger_open),  RULE(ledger_item),   RULE(ledger_close), RULE(meeting_open),
    RULE(meeting_item), RULE(meeting_close), RULE(pause),        { 0 },
};
