"""Measure the explorer in Chromium: size, requests, time to first picture and slider steps.

    python tools/explorer_speed.py > benchmarks/results/RUN/page.json
    python tools/explorer_speed.py path fire            of these encodings only
    python tools/explorer_speed.py --quick rope         few samples: does it still run?

A step is the time from moving a slider until the numbers are computed and all figures drawn. The
slider is the encoding's first, or the number of tokens if it has none. `cpu` is the CPU time of the
page's thread for one step, frames included; other programs disturb it less. At 256 tokens, more
than the page shows, only the scores or the added rows are computed, and nothing is drawn. Only the
head that is shown is computed.
"""

import gzip
import json
import shutil
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import CDPSession, sync_playwright

import posenc
from posenc.show.explorer import document
from posenc.support.provenance import since

STEPS, RUNS = 30, 10  # the page caches 8 results, so the steps cycle through more lengths
STEP = """async ([name, steps]) => {
  const range = [...document.querySelectorAll("input[type=range]")].find(
    (one) => document.querySelector(`label[for="${one.id}"]`)?.textContent === name);
  const times = [];
  for (let step = 0; step < steps; step++) {
    range.value = String(name === "Tokens" ? 128 - step % 12 : 5 + (step * 7) % 30);
    const begun = performance.now();
    range.dispatchEvent(new Event("input", { bubbles: true }));
    times.push(performance.now() - begun);
    await new Promise((done) => requestAnimationFrame(done));
  }
  return times;
}"""
SCORES = """([data, slug, n, runs]) => {
  const one = data.encodings.find((each) => each.slug === slug);
  const pos = $page_compute.walk(n, one.graph.axes, 0);
  const wanted = [$page_compute.adds(one) ? "embedded" : "scores"];
  return Array.from({ length: runs }, () => {
    const begun = performance.now();
    $page_compute.computed(one, pos, {}, wanted);
    return performance.now() - begun;
  });
}"""


def thread_time(session: CDPSession) -> float:
    """Return the CPU seconds that the main thread of the page has used."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(one["value"] for one in metrics if one["name"] == "TaskDuration")


def said(times: list[float]) -> dict[str, float]:
    """Format times in milliseconds: minimum, median and 90th percentile."""
    ordered = sorted(times)
    return {
        "least": round(ordered[0], 2),
        "median": round(statistics.median(ordered), 2),
        "p90": round(ordered[int(0.9 * len(ordered))], 2),
    }


def main() -> None:
    begun, explorer = time.time(), posenc.explore()
    quick, chosen = "--quick" in sys.argv, [one for one in sys.argv[1:] if one != "--quick"]
    pages, steps, runs = (1, 3, 1) if quick else (5, STEPS, RUNS)
    html = explorer.html
    found: dict = {"bytes": len(html.encode()), "gzip": len(gzip.compress(html.encode(), 9))}
    found |= {"first picture, ms": [], "step at 128, ms": {}, "scores at 256, ms": {}}
    with TemporaryDirectory() as folder, sync_playwright() as play:
        path = Path(folder) / "explore.html"
        path.write_text(html, "utf-8")
        browser = play.chromium.launch(executable_path=shutil.which("chromium"))
        requests: list[str] = []
        for _ in range(pages):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            requests.clear()
            page.on("request", lambda one: requests.append(one.url))
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-ready]")
            paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
            found["first picture, ms"].append(round(page.evaluate(f"({paint})")))
            found["requests"] = len([one for one in requests if not one.startswith("data:")])
            page.close()
        encodings = {one["slug"]: one for one in explorer.data["encodings"]}
        encodings = {slug: encodings[slug] for slug in chosen or encodings}
        for slug, one in encodings.items():
            option = next(iter(one["sliders"]), "Tokens")
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(f"{path.as_uri()}#v1/encoding/{slug}?n=128")
            page.wait_for_selector("html[data-ready]")
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            page.evaluate(STEP, [option, 8])  # until the loops are compiled
            worked = thread_time(session)
            times = page.evaluate(STEP, [option, steps])
            cpu = 1000 * (thread_time(session) - worked) / len(times)
            found["step at 128, ms"][slug] = said(times) | {"cpu": round(cpu, 2)}
            page.close()
        page = browser.new_page()
        page.add_script_tag(content=document.script("page/compute.js"))
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        for slug, one in encodings.items():
            if slug == "learned":  # its rows end before
                continue
            only = {"encodings": [one]}
            page.evaluate(SCORES, [only, slug, 256, 3])
            worked = thread_time(session)
            times = page.evaluate(SCORES, [only, slug, 256, runs])
            cpu = 1000 * (thread_time(session) - worked) / runs
            found["scores at 256, ms"][slug] = said(times) | {"cpu": round(cpu, 2)}
        found["browser"] = browser.version
        browser.close()
    made = since(begun)
    found["machine"], found["started"] = made.machine, made.started
    json.dump(found, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
