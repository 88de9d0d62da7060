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
