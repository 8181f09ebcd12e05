"""What the demo shows of the run: samples of the daemon's /metrics, lines of text, and the plot."""

import re
import time
import urllib.request

_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def sample(url):
    """One reading of a Prometheus page: {(name, ((label, value), ...)): number}, and the time."""
    with urllib.request.urlopen(url, timeout=5) as page:
        lines = page.read().decode().splitlines()
    values = {}
    for match in filter(None, map(_SAMPLE.match, lines)):
        name, labels, value = match.groups()
        values[name, tuple(sorted(_LABEL.findall(labels or "")))] = float(value)
    return time.monotonic(), values


def total(values, name, **labels):
    """Sum of a metric over all label sets that hold `labels`."""
    wanted = set(labels.items())
    return sum(v for (n, held), v in values.items() if n == name and wanted <= set(held))


def rate(before, after, name, **labels):
    """Increase of a counter per second; one that fell began anew with its daemon."""
    old, new = total(before[1], name, **labels), total(after[1], name, **labels)
    return (new - old if new >= old else new) / (after[0] - before[0])


def reward_mean(before, after, **labels):
    """Mean reward of what came in between two samples; None if that was nothing."""
    count = rate(before, after, "forebay_rewarded_total", **labels)
    return rate(before, after, "forebay_reward_sum", **labels) / count if count > 0 else None


def tokens_mean(before, after, **labels):
    """Mean length of what came in between two samples; None if that was nothing."""
    count = rate(before, after, "forebay_rollouts_total", fate="accepted", **labels)
    tokens = rate(before, after, "forebay_tokens_total", stage="accepted", **labels)
    return tokens / count if count > 0 else None


def lag_mean(before, after):
    """Mean lag of what was trained between two samples; None if that was nothing."""
    count = rate(before, after, "forebay_trained_lag_count")
    return rate(before, after, "forebay_trained_lag_sum") / count if count > 0 else None


def progress(first, before, after):
    """One line for people."""
    parts = [
        f"{after[0] - first[0]:5.0f}s",
        f"version {total(after[1], 'forebay_version_published'):3.0f}",
    ]
    for label, mean, form in (
        ("reward", reward_mean, "4.2f"),
        ("lag", lag_mean, "3.1f"),
        ("tokens", tokens_mean, "4.1f"),
    ):
        value = mean(before, after)
        parts.append(f"{label} {'-' if value is None else format(value, form)}")
    for who in ("trainer", "actor"):
        parts.append(
            f"{who}s waiting {rate(before, after, 'forebay_waited_seconds_total', who=who):.1f}"
        )
    return "  ".join(parts)


def plot(path, samples, sources, evals, window=5):
    """Reward, lag, lengths and waiting over time; `evals` are (time, pass rate, standard error)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    start, pairs = samples[0][0], list(zip(samples, samples[window:]))
    figure, ((reward, lag), (tokens, waiting)) = pyplot.subplots(2, 2, figsize=(11, 7), sharex=True)

    def draw(axes, title, label, value):
        points = [(after[0] - start, value(before, after)) for before, after in pairs]
        points = [(t, v) for t, v in points if v is not None]
        axes.plot(*(zip(*points) if points else ((), ())), label=label)
        axes.set_title(title)

    for source in sources:
        draw(
            reward,
            "reward of rollouts, and pass rate on held-out tasks",
            source,
            lambda a, b: reward_mean(a, b, source=source),
        )
        draw(
            tokens,
            "tokens of a rollout",
            source,
            lambda a, b: tokens_mean(a, b, source=source),
        )
    reward.errorbar(
        [t - start for t, _, _ in evals],
        [m for _, m, _ in evals],
        [e for _, _, e in evals],
        fmt="ko",
        capsize=4,
        label="held-out",
    )
    draw(
        lag,
        "lag of trained rollouts, in versions",
        "mean",
        lag_mean,
    )
    for who in ("trainer", "actor"):
        draw(
            waiting,
            "seconds waited per second",
            f"{who}s",
            lambda a, b: rate(a, b, "forebay_waited_seconds_total", who=who),
        )
    for axes in (reward, lag, tokens, waiting):
        axes.legend()
        axes.grid(alpha=0.3)
    for axes in (tokens, waiting):
        axes.set_xlabel("seconds")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
