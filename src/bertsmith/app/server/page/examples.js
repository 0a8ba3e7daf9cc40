// Texts to start from, one small set for each ability. The fields start with the first of a set.

const sample = (name, values) => ({ name, values });
const text = (name, content) => sample(name, { text: content ?? name });
const pair = (name, first, second) => sample(name, { text: first, pair: second });

export const GAPS = [
  text("The doctor", "The doctor shook his [MASK] and left the room."),
  text("Two masks", "She opened the [MASK] and looked out of the [MASK]."),
  text("Grammar", "The keys to the old house [MASK] on the table."),
  text("A rare word", "The [MASK] sailed from the harbour before the storm."),
];

export const BEGINNINGS = [
  text("The doctor", "The doctor shook his head and"),
  text("A habit", "Let's stick to"),
  text("A question", "Nobody knew why the old house"),
];

export const CONTINUATIONS = [
  pair("It follows", "He knocked at the door and waited.", "Nobody came, so he knocked again."),
  pair("It does not", "He knocked at the door and waited.", "The price of wheat fell by a third that year."),
  pair("A change", "The rain had stopped at last.", "They went out to look at the garden."),
];

export const PAIRS = [
  pair("Paraphrase", "A man is playing a guitar on stage.", "Someone plays the guitar in front of people."),
  pair("Related", "A woman is slicing an onion.", "A woman is cutting a tomato."),
  pair("Unrelated", "The train was late again.", "Add two eggs and a spoon of sugar."),
];

export const REVIEWS = [
  text("Delight", "A warm, funny and beautifully acted film that I would gladly see again."),
  text("Regret", "Two hours of my life that I will never get back."),
  text("Mixed", "The acting is superb, but the story never finds its feet."),
];

const MESSAGES = [
  text("A prize", "CONGRATULATIONS! Your number has WON a cash prize of £500. Text CLAIM to 80888 now. Offer ends tonight!"),
  text("A friend", "Running ten minutes late, can you order for me? Same as last time."),
  text("A bill", "Your invoice for October is attached. Payment is due in 14 days."),
];

const CLAIMS = [
  text("A figure", "Unemployment has fallen to its lowest level in twelve years."),
  text("A wish", "I think we can do better than this, and we will."),
  text("A vote", "My opponent voted against that bill four times."),
];

const INFERENCES = [
  pair("It follows", "A woman in a red coat is walking her dog along the river.", "A woman is outside."),
  pair("It cannot be", "A woman in a red coat is walking her dog along the river.", "Nobody is outside."),
  pair("Perhaps", "A woman in a red coat is walking her dog along the river.", "She is on her way home."),
];

const SENTENCES = [
  text("A book", "The book the boy read was on the table."),
  text("A mix-up", "Book the was boy on read table."),
  text("A question", "How far is it from Vienna to Prague?"),
];

const KINDS = [
  [/spam|\bham\b/, MESSAGES],
  [/entail|contradict|neutral.*entail|paraphrase|duplicate|equivalent/, INFERENCES],
  [/claim/, CLAIMS],
  [/positive|negative|\bpos\b|\bneg\b|star|sentiment/, REVIEWS],
];

/** Examples for a model that gives labels, by what its name and labels speak of. */
export function forLabels(model) {
  const words = [model.name, ...model.labels].join(" ").toLowerCase();
  const unknown = model.pair === null ? [...PAIRS, ...SENTENCES] : SENTENCES;
  return model.pair === true ? INFERENCES : (KINDS.find(([pattern]) => pattern.test(words))?.[1] ?? unknown);
}

export const ENDINGS = [
  sample("A kettle", {
    text: "She filled the kettle and set it on the stove.",
    endings: "Then she waited for the water to boil.\nThen she swam to the other side.\nThen the stove sang a song in French.",
  }),
  sample("A goal", {
    text: "The striker ran towards the goal and kicked the ball.",
    endings: "The keeper jumped and caught it.\nThe keeper planted it in the garden.\nThe ball read the newspaper.",
  }),
];

const NAMES = [
  text("An explorer", "Roald Amundsen left Oslo in June 1910 and reached the South Pole on 14 December 1911."),
  text("A company", "Siemens opened an office in São Paulo, and Maria Silva became its first director."),
  text("A match", "Ajax beat Real Madrid 4–1 at the Bernabéu after two goals by Dušan Tadić. ⚽"),
];

const DISEASES = [
  text("A family", "Two sisters with ataxia-telangiectasia developed breast cancer before the age of forty."),
  text("A gene", "Mutations in this gene cause cystic fibrosis and, more rarely, chronic pancreatitis."),
];

/** Examples for a model that tags, by what its tags speak of. */
export function forTags(model) {
  if (model.task === "entities-by-name" && !model.labels.length)
    return NAMES.map(({ name, values }) => sample(name, { ...values, labels: "person\nplace\norganization" }));
  return /disease|chemical|gene|protein/i.test(model.labels.join(" ")) ? DISEASES : NAMES;
}

const POLE =
  "The Norwegian expedition led by Roald Amundsen reached the South Pole on 14 December 1911. Five weeks later a British " +
  "party under Robert Falcon Scott arrived at the same place and found a tent with a letter. All five men of that party " +
  "died of hunger and cold on the way back. Amundsen had used dogs; Scott relied on ponies, motor sledges and his men.";

const BRIDGE =
  "The bridge was finished in 1890 after eight years of work. It is 2,467 metres long and carries two railway tracks " +
  "46 metres above the river. More than four thousand men worked on it, and 57 of them lost their lives.";

export const QUESTIONS = [
  sample("Who?", { question: "Who led the Norwegian expedition?", context: POLE }),
  sample("Why?", { question: "What did the men of Scott die of?", context: POLE }),
  sample("How long?", { question: "How long is the bridge?", context: BRIDGE }),
  sample("Not said", { question: "Who paid for the bridge?", context: BRIDGE }),
];

export const TEXTS = [
  sample("Five sentences", {
    texts: "The cat sleeps on the sofa.\nA kitten is napping on the couch.\nShares fell sharply on Monday.\nThe stock market had a bad day.\nHow do I bake bread without yeast?",
  }),
  sample("One word, two senses", {
    texts: "We sat on the bank of the river.\nThe bank raised its interest rates.\nThe stream is lined with willows.\nShe asked for a loan.",
  }),
];

export const SOURCES = [
  text(
    "A mail",
    "Hi Ann, the meeting about the new office is on Tuesday at ten, in the room on the second floor. Please bring the plans and the list of desks. We have an hour, and the architect will join us by phone. Thanks, Ben",
  ),
  text("A question", "When does the library close on Sundays?"),
];

export const PRONOUNS = [
  sample("Two players", {
    text: "Helen met Maria at the station, and on the way home she told her friend about the match. Maria had missed it.",
    pronoun: "she",
    names: "Helen\nMaria",
  }),
  sample("A guest", {
    text: "Paul asked Henry to stay for dinner, but he had to catch the last train.",
    pronoun: "he",
    names: "Paul\nHenry",
  }),
];

export const LABELS = [
  sample("A mail", {
    text: "I was charged twice for the same order.",
    labels: "billing: invoices, payments and refunds\nhardware: broken or missing devices\nfeedback: praise and wishes",
  }),
  sample("A question", { text: "Which city is the capital of Peru?", labels: "a person\na place\na number" }),
];

export const QUERIES = [sample("Repairs", { query: "how was it mended" }), sample("A person", { query: "who forgot it" })];

export const PASSAGES = [
  sample("Bread", {
    query: "how to bake bread without yeast",
    passages:
      "Soda bread rises with baking soda and buttermilk, so it needs no yeast.\nYeast is a fungus that turns sugar into carbon dioxide.\nBread was baked in Egypt more than four thousand years ago.\nThe bakery opens at six in the morning.\nA slow oven keeps the crust of a loaf soft.",
  }),
  sample("Sleep", {
    query: "why do we dream",
    passages:
      "Most dreams happen in a phase of sleep in which the eyes move quickly.\nA mattress should be turned twice a year.\nSome researchers believe that dreams help to order what was learned by day.\nThe theatre plays a dream in five acts.\nMost adults sleep for seven or eight hours.",
  }),
];

export const WORDS = [
  text("Rare words", "The unbelievably tall giraffe hiccuped during photosynthesis."),
  text("Names and numbers", "Łódź, 3.14159 and AT&T were mentioned on 2024-05-17."),
  text("Many scripts", "naïve café, 東京, Привет, مرحبا, 🙂"),
];

export const SENTENCES_TO_LOOK_AT = [
  pair("It", "The cup fell from the shelf because it stood too near the edge.", ""),
  pair("Two banks", "She went to the bank by the river, not to the bank that lends money.", ""),
  pair("A pair", "He knocked at the door.", "Nobody opened it."),
];
