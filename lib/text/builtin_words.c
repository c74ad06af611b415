/* builtin_words.c - the words of the built-in text: the river country and what people keep there
 *
 * Within a class the words stand in the order of their frequency. None begins with a vowel letter
 * that is spoken as a consonant, or the reverse, because "a" or "an" is chosen by the letter. */
#include "text/builtin.h"

const struct word_class builtin_classes[] = {
    /* ---- things */
    { "tool", WORD_NOUN,
      "key lamp rope kettle lantern basket candle barrel hammer bell coin button needle cup plate spoon bowl jar bottle box chest "
      "sack bucket ladder broom knife/knives axe saw nail hook chain wheel oar net sail anchor compass map book ledger pen ring "
      "mirror comb brush thimble spindle loom blanket pillow cushion rug curtain stool bench chair clock whistle drum fiddle flute "
      "horn pipe cart barrow saddle bridle harness yoke plough rake spade sickle scythe shovel chisel awl anvil pot pan ladle "
      "sieve churn tub pail jug flask cork tray crate bundle parcel purse pouch satchel trunk frame hinge bolt latch padlock "
      "handle lever pulley crank staff/staves pole peg pin clasp buckle bead tile brick plank shingle wedge mallet torch wick "
      "inkwell seal stamp banner flag token medal cradle doll kite mask lute goblet platter skillet griddle trivet poker sundial "
      "weathercock doorknob" },
    { "stuff", WORD_PLAIN,
      "brass copper iron silver tin clay oak pine wooden glass leather linen woollen bone stone paper wicker pewter bronze steel "
      "cedar walnut birch velvet silk canvas felt ivory amber slate marble wax straw reed lead maple enamel porcelain willow "
      "ebony" },
    { "cloth", WORD_NOUN,
      "coat hat boot glove cloak shirt scarf/scarves apron cap belt stocking shoe sleeve collar pocket hood shawl jacket waistcoat "
      "skirt gown ribbon sash mitten vest bonnet slipper cuff garter tunic" },
    { "weave", WORD_PLAIN,
      "linen woollen velvet silk canvas felt leather cotton lace flannel knitted quilted satin tweed straw sackcloth" },
    { "goods", WORD_PLAIN,
      "salt flour wool corn timber coal cloth oil wheat barley tar wax rye hay straw linen thread ink paper soap tallow chalk lime "
      "sand gravel peat charcoal leather malt pepper ginger sugar vinegar lace resin turpentine flax hemp mortar pitch saffron "
      "cinnamon tobacco indigo sulphur alum felt twine canvas parchment" },
    { "food", WORD_PLAIN,
      "bread soup cheese butter milk honey cider ale tea fish porridge bacon stew wine mutton broth cake pudding jam pickle mustard "
      "gravy custard gingerbread toast marmalade dumplings oatcake sausage cabbage herring" },
    { "crop", WORD_NOUN,
      "apple onion turnip bean cabbage pear plum pea carrot leek cherry radish parsnip marrow gooseberry currant lettuce "
      "pumpkin walnut hazelnut mushroom beetroot strawberry raspberry quince medlar" },
    { "part", WORD_NOUN,
      "door window wall roof floor stair beam gate hearth chimney table shelf/shelves corner step porch yard cellar loft doorway "
      "threshold cupboard ceiling rafter attic landing hall kitchen passage stove mantel sill gutter drain railing banister "
      "shutter gable trapdoor pantry larder alcove parlour scullery courtyard balcony" },

    /* ---- out of doors */
    { "land", WORD_NOUN,
      "river hill road field wood valley bridge shore path meadow marsh lake stream lane ridge bank cliff pond island moor harbour "
      "forest orchard pasture spring well quarry hedge ditch wall square market village town coast bay beach cove dune reef "
      "channel canal weir waterfall glen dale heath fen bog thicket grove clearing hollow slope summit peak gorge ravine cave "
      "ledge boulder terrace vineyard garden court alley street causeway dyke ferry wharf/wharves jetty crossing milestone "
      "signpost graveyard common copse brook headland sandbank gully warren" },
    { "mark_start", WORD_PLAIN,
      "river lamp salt mill corn wind bell iron wool rope barn moon sand tide winter night hill cart moss copper wheat apple reed "
      "goat lime fish honey tar ferry clay fern heron ox summer drum brick" },
    { "mark_end", WORD_PLAIN,
      "house yard gate stone path side bank field way works post light garth row well wall bridge stair hall loft pit croft stead "
      "end reach brow fold rise" },
    { "tree", WORD_NOUN,
      "oak willow ash elm birch alder pine beech rowan yew hazel poplar maple cedar holly hawthorn larch aspen sycamore "
      "chestnut juniper blackthorn" },
    { "plant", WORD_PLAIN,
      "grass nettles ivy moss thyme mint clover bracken heather reeds thistles rosemary sage lavender bluebells brambles foxgloves "
      "daisies poppies violets lilies rushes sorrel parsley fennel tansy yarrow primroses buttercups cowslips" },
    { "weather", WORD_NOUN,
      "wind rain mist snow cloud frost storm fog shadow smoke ice breeze twilight dew drizzle sleet haze hail thunder "
      "sunlight moonlight gale" },
    { "beast", WORD_NOUN,
      "dog horse cat sheep/sheep crow cow hen goat goose/geese ox/oxen fox hare rabbit heron owl raven otter swan duck lamb "
      "calf/calves bull mare colt pig pigeon sparrow swallow wren thrush lark gull squirrel mouse/mice rat toad frog bee wasp moth "
      "badger trout eel hedgehog stoat weasel magpie jackdaw cricket beetle" },
    { "companion", WORD_PLAIN,
      "dog cat mule goat pony donkey hound hen goose mare ferret parrot crow terrier sheepdog heifer piglet duck rooster spaniel "
      "jackdaw tortoise" },
    { "pet", WORD_PLAIN,
      "^button ^thimble ^barley ^pepper ^bramble ^cobble ^tinder ^acorn ^biscuit ^candle ^dumpling ^feather ^ginger ^hazel ^juniper "
      "^kettle ^lantern ^marrow ^nettle ^onion ^parsnip ^quill ^rusty ^saffron ^tansy ^velvet ^walnut ^bellows ^cricket ^drummer "
      "^fiddle ^gravel ^hobble ^mustard ^needle ^patch ^pudding ^ribbon ^shingle ^turnip ^whistle ^bracken ^buckle ^chalk ^clover "
      "^copper ^gander ^mallow ^pebble ^sorrel" },

    /* ---- people */
    { "folk", WORD_NOUN,
      "neighbour child/children stranger farmer carter sailor widow shepherd traveller clerk priest merchant pedlar soldier "
      "servant boy girl apprentice cook maid porter judge doctor teacher beggar pilgrim guard musician tailor hunter fisherman/fishermen "
      "ferryman/ferrymen boatman/boatmen constable magistrate sexton steward messenger drover reaper ploughman/ploughmen lodger "
      "orphan bargeman/bargemen tenant landlord" },
    { "building", WORD_PLAIN,
      "mill barn tower inn forge chapel cottage boathouse granary workshop bakery dairy stable brewery tannery lighthouse "
      "storehouse schoolhouse tollhouse farmhouse courthouse warehouse weighhouse bathhouse guardhouse gatehouse foundry "
      "smokehouse icehouse ropewalk library glasshouse pottery sawmill" },
    { "trade", WORD_PLAIN,
      "miller baker blacksmith weaver potter carter cooper tanner dyer glazier chandler cobbler saddler thatcher mason joiner "
      "carpenter printer bookbinder clockmaker locksmith tinker beekeeper gardener brewer butcher fisher sailmaker boatbuilder "
      "basketmaker surveyor mapmaker schoolteacher gravedigger bellringer lamplighter tollkeeper gatekeeper innkeeper storekeeper "
      "notary scribe falconer stonecutter woodcutter quilter lacemaker candlemaker papermaker wheelwright millwright shipwright" },
    { "body", WORD_NOUN,
      "hand head foot/feet eye shoulder knee face arm finger ear elbow thumb heel chin wrist ankle palm cheek" },
    { "idea", WORD_PLAIN,
      "patience trouble hope silence luck work doubt courage truth fear kindness peace pride anger news sorrow wisdom comfort "
      "hunger danger envy grief joy mercy caution order mischief gossip talk laughter music sleep rest labour learning skill "
      "cunning charity duty faith thrift shame pity malice boredom haste memory gratitude suspicion mystery delight "
      "despair ambition curiosity modesty obedience warmth idleness loyalty prudence sympathy remorse contentment" },
    { "matter", WORD_NOUN,
      "question promise secret debt rumour habit story bargain quarrel letter lesson joke dream reason rule plan mistake "
      "answer wish custom errand lie price wager complaint riddle warning favour excuse grievance proverb verdict accident "
      "memory opinion argument visit wedding funeral festival" },

    /* ---- how things and people are */
    { "look", WORD_PLAIN,
      "old small long heavy dark grey round plain thin empty broken wide worn crooked dusty white black green brown red pale blue "
      "yellow cold warm wet dry soft rough smooth sharp dull bright faded rusty hollow solid slender stout short square bent "
      "twisted cracked patched painted carved polished tarnished weathered ragged neat tidy clean dirty damp little great "
      "ancient familiar forgotten sturdy clumsy graceful handsome ugly pretty curious splendid humble modest mended borrowed "
      "stolen spare costly cheap precious scarlet golden silvery purple speckled striped spotless greasy sooty" },
    { "built", WORD_PLAIN,
      "old tall narrow low crooked whitewashed thatched draughty handsome square gloomy sturdy leaning plain ancient cramped "
      "cheerful ivied panelled shuttered ramshackle vaulted stately timbered" },
    { "lay", WORD_PLAIN,
      "long low narrow old green quiet broad steep muddy mossy stony sunny shady windy lonely empty wooded crooked far near lower "
      "upper northern southern western eastern sandy flooded frozen wild grassy overgrown dusty open hidden silent deserted "
      "pleasant gentle flat dark deep wide high winding shallow marshy fertile barren dismal sheltered ruined abandoned misty "
      "famous forgotten crowded" },
    { "sort", WORD_PLAIN,
      "old long strange small foolish plain simple secret serious curious delicate tiresome difficult private public sorry endless "
      "famous harmless bitter solemn costly doubtful idle awkward lucky sudden sensible second familiar tangled dangerous "
      "ridiculous noble petty weighty hopeless amusing" },
    { "mood", WORD_PLAIN,
      "tired patient careful quiet stubborn cheerful anxious proud gentle hungry curious calm restless silent weary polite clever "
      "careless generous sour merry solemn shy bold brave kind stern lazy busy eager grateful hopeful doubtful sleepy thirsty "
      "angry friendly lonely thoughtful watchful nervous contented humble sensible foolish cautious gloomy jolly brisk blunt "
      "modest faithful loyal sly grave frank idle wary earnest timid hearty surly drowsy talkative forgetful suspicious "
      "forgiving impatient absent obstinate dignified bewildered" },
    { "sky", WORD_PLAIN,
      "cold clear grey mild bright windy damp dark still wet stormy pale frosty misty warm heavy cloudy sharp bitter gentle golden "
      "low raw sullen hazy blustery breathless rainy snowy glorious" },
    { "how", WORD_PLAIN,
      "slowly quietly carefully gently quickly patiently softly firmly eagerly calmly silently sadly gladly kindly plainly warmly "
      "boldly briskly steadily gravely loudly lightly heavily neatly closely crossly politely proudly shyly sharply simply "
      "solemnly stiffly suddenly sweetly thoughtfully warily wearily wisely anxiously awkwardly cheerfully faithfully fondly "
      "freely grimly happily hastily humbly idly lazily merrily mildly nervously openly peacefully promptly reluctantly roughly "
      "rudely sleepily smoothly soberly sternly stubbornly tenderly thoroughly tidily vaguely wildly absently earnestly gruffly "
      "mournfully doubtfully" },
    { "often", WORD_PLAIN, "often always never sometimes usually rarely seldom still once" },

    /* ---- what they do */
    { "go", WORD_VERB,
      "walk go/went/going ride/rode/riding hurry climb wander run/ran/running march travel stroll trudge limp ramble sail stumble "
      "creep/crept plod/plodded/plodding tramp drift scramble stride/strode/striding shuffle trot/trotted/trotting journey return "
      "amble saunter toil wade stagger tiptoe" },
    { "rest", WORD_VERB,
      "wait sit/sat/sitting sleep/slept stand/stood laugh sigh cough nod/nodded/nodding smile listen work rest sing/sang whistle "
      "shiver yawn hum/hummed/humming frown shrug/shrugged/shrugging pause kneel/knelt weep/wept pray dance eat/ate drink/drank "
      "linger hesitate grumble tremble blush stare wonder doze stretch sneeze blink bow shout whisper argue complain gossip "
      "chuckle fidget" },
    { "handle", WORD_VERB,
      "carry mend find/found take/took bring/brought clean count hold/held sell/sold buy/bought lift move open wash polish pack "
      "hide/hid/hiding paint carve borrow lose/lost gather sort weigh wrap/wrapped/wrapping tie/tied/tying drop/dropped/dropping "
      "push pull drag/dragged/dragging fetch store stack repair measure sharpen oil sweep/swept shake/shook/shaking fill empty "
      "cover bury break/broke/breaking burn trade steal/stole/stealing mark examine inspect collect deliver admire touch turn "
      "hang/hung rinse scrub/scrubbed/scrubbing brush dust number label load unload roll lower raise hoist haul fasten loosen "
      "balance arrange hammer scrape varnish weave/wove/weaving stitch patch trim/trimmed/trimming grease untangle rescue "
      "inherit" },
    { "say", WORD_VERB,
      "say/said/saying answer reply whisper call murmur add declare mutter shout insist explain cry remark observe grumble admit/admitted/admitting "
      "suggest announce repeat" },
    { "drift", WORD_VERB,
      "rise/rose/rising fall/fell turn fade gather drift settle clear thicken wander shine/shone/shining gleam glitter darken "
      "brighten deepen spread/spread linger return swell shift whisper sink/sank tremble vanish slow stir/stirred/stirring "
      "freeze/froze/freezing thaw ripple roll glow shimmer wake/woke/waking flicker dwindle" },
    { "think", WORD_VERB,
      "know/knew believe remember think/thought hope hear/heard guess suppose notice forget/forgot/forgetting suspect decide fear "
      "swear/swore understand/understood dream imagine discover doubt expect" },

    /* ---- time and number */
    { "season", WORD_PLAIN, "winter autumn spring summer" },
    { "month", WORD_PLAIN,
      "^march ^october ^november ^april ^may ^september ^february ^january ^june ^december ^august ^july" },
    { "day", WORD_PLAIN, "^monday ^friday ^sunday ^wednesday ^saturday ^tuesday ^thursday" },
    { "few", WORD_PLAIN, "two three four five six seven eight nine" },
    { "nth", WORD_PLAIN, "first third second fourth last fifth sixth seventh tenth ninth eighth" },

    /* ---- parts of names: drawn anew for every document, each as likely as the others */
    { "first_start", WORD_NAME,
      "mar tol bren el has lin bet ros tam jor wil cor fen gar hil iv jan kel lor mir ned ol per rud sel tib ul ver win yol ab ced "
      "dag est flor gid hob ild jess kit" },
    { "woman_end", WORD_NAME,
      "a ia wen eth issa ine ora elle anna ena ica ota une ela isse ara ettie inda uvia ola" },
    { "man_end", WORD_NAME,
      "o ric and em us in ard en ulf as ert is old iver om win ian athan uel eck" },
    { "last_start", WORD_NAME,
      "vos har quil sed mor tar pen grin bal crow dun ed far gul hol ick jar kest lan mun nor oak pel rav sal thorn ud vel wes yar "
      "ash brim cat drew eller fitch gam hux ing lock mad pol ridd stan tull wag wick zeld" },
    { "last_end", WORD_NAME,
      "s ley win croft den mark ow er son ton by ard ick ell ing over sey ham wood gate well more field land brook man dock itt "
      "ock ace ane ent ery ish old ost ule uth yard ways" },
    { "place_start", WORD_NAME,
      "tarn vel ash bram cald dray elm fal gren hath ister kel lang mal neth os pem quar rith sax thel ul ven wether yarn bor crag "
      "dov ever fern gold hern ib keld lyd mist nor orm pol rook scar torn under vark whin yew zan ambl" },
    { "place_end", WORD_NAME,
      "holt mere ford wick combe stead by thorpe dale ness port bury hythe minster low den well haven garth moor cross bourne gate "
      "leigh rigg hope marsh sands tor fell beck stow" },
    { 0 },
};
