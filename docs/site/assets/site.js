// The theme's bars of code are landmarks without a name, and its wide tables do not scroll by key.
function mend() {
  for (const bar of document.querySelectorAll(".md-code__nav")) bar.role = "none";
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap, .shown")) wide.tabIndex = 0;
}
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
mend();
