// Sphinx reads the pages that a search found, for a part of their text. Browsers refuse that for
// files of the disk, and results have their titles alone there.
if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}

// What scrolls by itself can be reached with the keyboard, and only that.
function letKeysScroll() {
  const parts = "div.highlight pre, div.cell_output, div.cell_output pre, .table-wrapper, article .math";
  for (const part of document.querySelectorAll(parts)) {
    if (part.scrollWidth > part.clientWidth) {
      part.tabIndex = 0;
    } else {
      part.removeAttribute("tabindex");
    }
  }
}
window.addEventListener("load", letKeysScroll);
window.addEventListener("resize", letKeysScroll);

// A published site lies in a folder named as its version, beside those of others: .ci/add_version.py
// writes their list. A copy on the disk has none, and does not ask.
async function listVersions() {
  const place = document.querySelector(".sidebar-brand");
  if (!place || !location.protocol.startsWith("http")) return;
  const root = new URL(document.documentElement.dataset.content_root, location.href);
  const answer = await fetch(new URL("../versions.json", root)).catch(() => null);
  if (!answer || !answer.ok) return;
  const here = root.pathname.split("/").at(-2);
  const list = document.createElement("details");
  list.className = "versions";
  list.append(Object.assign(document.createElement("summary"), { textContent: `Version ${here}` }));
  for (const version of await answer.json()) {
    const link = document.createElement("a");
    link.href = new URL(`../${version}/index.html`, root);
    link.textContent = version === "dev" ? "dev, not released" : version;
    if (version === here) link.setAttribute("aria-current", "true");
    list.append(link);
  }
  place.after(list);
}
window.addEventListener("DOMContentLoaded", listVersions);
