"""The page of tools/report.py in a headless Chromium: errors, figures, values under the pointer, schemes."""

import html
import json
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

from report_runs import FIGURES, ReportCase

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# What the page is asked once it is drawn: sizes, text outside its figure or page, and the values under the pointer.
PROBE = """<script>
window.addEventListener("load", () => {
  const shown = [...document.querySelectorAll("figure svg")].filter((s) => getComputedStyle(s).display !== "none");
  const width = document.documentElement.clientWidth;
  const outside = [...document.querySelectorAll("main *")].filter((node) => {
    const box = node.getBoundingClientRect();
    return box.width > 0 && (box.left < -1 || box.right > width + 1);
  });
  const tip = document.getElementById("tip"), tips = {};
  const point = (node, part) => {
    const box = node.getBoundingClientRect();
    const at = { bubbles: true, clientX: box.left + box.width * part, clientY: box.top + box.height / 2 };
    node.dispatchEvent(new PointerEvent("pointermove", at));
    const text = tip.hidden ? "" : tip.textContent;
    node.dispatchEvent(new PointerEvent("pointerleave", at));
    return text;
  };
  for (const svg of shown) {
    const name = svg.closest("figure").id;
    tips[name] = point(svg.dataset.hover ? svg : svg.querySelector("[data-tip]"), 0.5);
  }
  const result = {
    ready: document.documentElement.dataset.ready === "true", hidden: tip.hidden,
    figures: Object.fromEntries(
      shown.map((s) => [s.closest("figure").id, Math.round(s.getBoundingClientRect().width)])),
    outside: outside.map((node) => node.tagName + " " + node.textContent.slice(0, 30)),
    smallest: Math.min(...shown.map((s) => 12 * s.getBoundingClientRect().width / s.viewBox.baseVal.width)), tips,
    page: getComputedStyle(document.body).backgroundColor,
  };
  document.body.dataset.probe = JSON.stringify(result);
});
</script>"""


@unittest.skipUnless(CHROMIUM, "no chromium here (apt-get install chromium)")
class BrowserTest(ReportCase):
    def setUp(self):
        super().setUp()
        run, reference = self.run_folder(), self.run_folder("reference", offset=0.01)
        self.html, self.content = self.report(run, "--reference", reference)

    def browse(self, path, *arguments, width=1280, dark=False):
        with tempfile.TemporaryDirectory() as profile:
            command = [
                CHROMIUM,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--enable-logging=stderr",
                f"--user-data-dir={profile}",
                f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                f"--window-size={width},1200",
                *arguments,
                "file://" + path,
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    def probe(self, **options):
        path = self.path("probe.html")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.content.replace("</body>", PROBE + "</body>"))
        dom, console = self.browse(path, "--dump-dom", **options)
        self.assertEqual(console, [])
        return json.loads(html.unescape(re.search(r'data-probe="([^"]*)"', dom)[1]))

    def test_console(self):
        self.assertEqual(self.browse(self.html, "--dump-dom")[1], [])
        broken = self.path("broken.html")  # the same test sees an error if the page has one
        with open(broken, "w", encoding="utf-8") as file:
            file.write(
                self.content.replace("</body>", "<script>missing()</script><img src='https://a.invalid/x'></body>")
            )
        self.assertGreaterEqual(len(self.browse(broken, "--dump-dom")[1]), 2)

    def test_figures(self):
        for width in (1280, 800, 500):
            found = self.probe(width=width)
            self.assertTrue(found["ready"])
            self.assertEqual(set(found["figures"]), FIGURES)
            self.assertGreaterEqual(min(found["figures"].values()), 250)
            self.assertEqual(found["outside"], [])
            self.assertGreaterEqual(found["smallest"], 9.5)  # pixels of the figures' type

    def test_values_under_the_pointer(self):
        found = self.probe()
        self.assertRegex(
            found["tips"]["loss"], r"^step \d+\ntraining  2\.\d+\nreference, training  2\.\d+\nvalidation "
        )
        self.assertRegex(found["tips"]["difference"], r"training  -0\.01\n")
        self.assertEqual(found["tips"]["memory"], "weights\n3.906 KiB\n40.0% of the arena")
        self.assertEqual(found["tips"]["heat-forward"], "qkv (Op)\nlayer 0\n1 ms")
        self.assertIn("FLOP/byte", found["tips"]["roofline"])
        self.assertTrue(found["hidden"])

    def test_schemes(self):
        light, dark = (self.probe(dark=dark)["page"] for dark in (False, True))
        self.assertEqual(light, "rgb(255, 255, 255)")
        self.assertLess(max(map(int, re.findall(r"\d+", dark))), 50)

    def test_screenshot_and_print(self):
        picture, print_ = self.path("report.png"), self.path("report.pdf")
        self.browse(self.html, f"--screenshot={picture}")
        with open(picture, "rb") as file:
            head = file.read()
        self.assertEqual(struct.unpack(">II", head[16:24]), (1280, 1200))
        self.assertGreater(len(head), 50000)
        self.browse(self.html, f"--print-to-pdf={print_}", dark=True)
        with open(print_, "rb") as file:
            self.assertEqual(file.read(5), b"%PDF-")


if __name__ == "__main__":
    unittest.main()
