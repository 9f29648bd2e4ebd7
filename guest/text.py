"""Two data sets that are written by a grammar and so need no download: headlines in two styles, and
little stories with a question. Standard library only, and the same to the letter for ever: the
generator is SplitMix64 in integers (Steele, Lea, Flood: Fast splittable pseudorandom number
generators, OOPSLA 2014). The tests pin the digest of each; changing a word makes another data set."""

from __future__ import annotations

from collections.abc import Sequence

PADDING = 0
HEADLINES = 6000
HEADLINE_WORDS = 18
STORIES = 6000
STORY_SENTENCES = 10
SENTENCE_WORDS = 6

Text = tuple[tuple[str, ...], int]
"""Words and class."""
Story = tuple[tuple[tuple[str, ...], ...], tuple[str, ...], int]
"""Sentences, question, and the class of the answer."""


class _SplitMix64:
    def __init__(self, seed: int) -> None:
        self._state = seed

    def below(self, bound: int) -> int:
        """An integer in 0 .. bound - 1; the bias of at most bound / 2**64 does not matter here."""
        mask = 0xFFFFFFFFFFFFFFFF
        self._state = (self._state + 0x9E3779B97F4A7C15) & mask
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return ((z ^ (z >> 31)) * bound) >> 64

    def pick(self, options: Sequence[str]) -> str:
        return options[self.below(len(options))]


# A headline has three parts. Each list goes from what news would say to what clickbait would.
_PARTS = (
    (
        "{body} says", "{place} {body} says", "study finds", "{number} {people} say", "report :",
        "{person} warns", "experts :", "watch :", "this {person} thinks", "why", "{n} reasons", "guess why",
        "we asked a {person} :", "the {adj} truth :", "you won't believe", "{n} times",
    ),
    (
        "{event} raises price of {things}", "{place} {body} {acts} plan for {things}",
        "{event} leaves {people} without {things}", "{things} in {place} face {event}",
        "{place} {acts} rules on {things}", "{people} ask for {adj} {things}",
        "{place} has too many {things}", "a {person} in {place} sold {things}",
        "{things} are the new {things}", "{people} love {things} from {place}",
        "this {person} tried {adj} {things}", "{things} are so {adj}",
        "every {person} needs {adj} {things}", "your {things} are {adj}",
    ),
    (
        "after {event}", "in {place}", "{body} told", "as costs rise", "after {number} years", "{time}",
        "and {people} agree", "says {person}", "once more", "right now", "here is what happened",
        "and the result is {adj}", "and we all {feel}", "and it will make you {feel}",
    ),
)  # fmt: skip
_SLOTS: dict[str, tuple[str, ...]] = {
    "n": ("5", "7", "9", "11", "13", "17", "21", "25"),
    "number": ("dozens of", "hundreds of", "thousands of", "two", "three", "six", "ten"),
    "things": (
        "photos", "recipes", "houses", "dogs", "cats", "phones", "trains", "schools", "roads", "jobs",
        "games", "songs", "films", "taxes", "banks", "farms", "books", "shoes", "gardens", "markets",
    ),
    "adj": (
        "amazing", "hidden", "sharp", "strange", "perfect", "slow", "shocking", "steady", "tiny", "weird",
    ),
    "feel": ("cry", "laugh", "smile", "think twice", "feel old"),
    "person": (
        "teacher", "mother", "student", "farmer", "doctor", "driver", "cook", "judge", "writer", "mayor",
    ),
    "people": ("workers", "students", "farmers", "families", "drivers", "doctors", "tenants", "voters"),
    "place": (
        "paris", "texas", "india", "london", "kenya", "tokyo", "brazil", "norway", "cairo", "chicago",
        "quebec", "lima",
    ),
    "body": ("council", "parliament", "court", "ministry", "union", "police", "bank", "senate"),
    "acts": ("approves", "rejects", "delays", "reviews", "drops", "backs"),
    "event": ("flood", "strike", "vote", "storm", "fire", "merger", "recall", "outage", "trial"),
    "time": ("this year", "today", "this week", "in 2016"),
}  # fmt: skip


def headlines() -> list[Text]:
    """Headlines, class 1 clickbait and class 0 news (after the two-class task of Chakraborty et al.,
    Stop clickbait, ASONAM 2016). Class 1 takes the later of two draws from each list of parts, class 0
    the earlier: every part is some evidence, none is proof, and many headlines are a near thing."""
    random = _SplitMix64(0x68656164)
    made: list[Text] = []
    for _ in range(HEADLINES):
        label = random.below(2)
        words: list[str] = []
        for part in _PARTS:
            draws = random.below(len(part)), random.below(len(part))
            for word in part[max(draws) if label else min(draws)].split():
                slot = word.strip("{}")
                words += random.pick(_SLOTS[slot]).split() if slot != word else [word]
        made.append((tuple(words), label))
    return made


ACTORS = ("mary", "john", "daniel", "sandra")
PLACES = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
_MOVES = ("moved to", "went to", "journeyed to", "travelled to", "went back to")


def stories() -> list[Story]:
    """Stories of 2 to 10 sentences and one question each, in the manner of bAbI task 1, single
    supporting fact (Weston et al., Towards AI-complete question answering, 2015): somebody moves in
    every sentence, and the answer is the last place of the one asked for."""
    random = _SplitMix64(0x73746F72)
    made: list[Story] = []
    for _ in range(STORIES):
        sentences = []
        whereabouts: dict[str, int] = {}
        for _ in range(2 * (1 + random.below(STORY_SENTENCES // 2))):
            actor, move, place = random.pick(ACTORS), random.pick(_MOVES), random.below(len(PLACES))
            sentences.append((actor, *move.split(), "the", PLACES[place]))
            whereabouts[actor] = place
        asked = random.pick(sorted(whereabouts))
        made.append((tuple(sentences), ("where", "is", asked), whereabouts[asked]))
    return made


def _words(*texts: str) -> tuple[str, ...]:
    return tuple(sorted({word for text in texts for word in text.split() if "{" not in word}))


HEADLINE_VOCABULARY = _words(
    *(text for part in _PARTS for text in part), *(text for slot in _SLOTS.values() for text in slot)
)
STORY_VOCABULARY = _words(*ACTORS, *PLACES, *_MOVES, "the where is")
"""Words in order of their token ids, which start at 1; 0 is padding."""


def encode(words: Sequence[str], ids: dict[str, int], length: int) -> list[int]:
    """Token ids, padded in front: the last token is always a word."""
    return [PADDING] * (length - len(words)) + [ids[word] for word in words]


def token_ids(vocabulary: Sequence[str]) -> dict[str, int]:
    """The id of every word."""
    return {word: i for i, word in enumerate(vocabulary, start=1)}
