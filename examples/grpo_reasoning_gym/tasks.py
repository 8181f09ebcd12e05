"""Tasks and verifiers from reasoning-gym; training and held-out tasks share no question.

Each task gets a prompt short enough for a character-level model: `sun>` asks for `nus`, `oacoa=`
for a palindrome of these letters, of which there may be several; the verifier takes any of them.
"""

import functools
import zlib

import reasoning_gym

SOURCES = {
    "spell_backward": dict(min_word_len=3, max_word_len=7),
    "palindrome_generation": dict(min_length=3, max_length=6),
}
HELD_OUT_SHARE = 0.2


def make_tasks(source, count, seed, held_out=False):
    """Up to `count` tasks {id, source, prompt, entry}; the seed does not move the split."""
    tasks = {}
    for entry in reasoning_gym.create_dataset(
        source, seed=seed, size=20 * count, **SOURCES[source]
    ):
        prompt = _prompt(source, entry["metadata"])
        is_held_out = zlib.crc32(_question(prompt).encode()) % 1000 < 1000 * HELD_OUT_SHARE
        if is_held_out == held_out:
            tasks[prompt] = {
                "id": f"{source}/{prompt}",
                "source": source,
                "prompt": prompt,
                "entry": entry,
            }
        if len(tasks) == count:
            break
    return list(tasks.values())


def verify(task, text):
    """1.0 if reasoning-gym's verifier takes `text` for a right answer to the task, else 0.0."""
    return float(_verifier(task["source"]).score_answer(text, task["entry"]) >= 1.0)


@functools.lru_cache(maxsize=None)
def _verifier(source):
    return reasoning_gym.create_dataset(source, size=1)


def _prompt(source, metadata):
    if source == "spell_backward":
        return metadata["word"].lower() + ">"
    return "".join(metadata["letters"]) + "="


def _question(prompt):
    """The same letters in another order ask for the same palindrome, so they are one question."""
    return "".join(sorted(prompt)) if prompt.endswith("=") else prompt
