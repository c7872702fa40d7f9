"""Where does a link lead that is opened in a tab of its own, or copied? To the same window and filters as a click: its address carries them.

Streamlit keeps the filters when a link is clicked, but not in the link's address; its links to the first page have none at all.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from overrun.dashboard import state

# What the pages' own pictures do by pointer and keys.
PICTURES: Final = f"<script>{Path(__file__).with_name('page.js').read_text()}</script>"
# What a page hands to the next one. A link that chooses one of them itself keeps its own.
_KEPT: Final = ("since", "from", "to", *state.KINDS, "slo")
_KEPT_UNLESS_CHOSEN: Final = ("metric",)
# Run again whenever something on the page moves, which it does whenever the address does.
SCRIPT: Final = """<script>(() => {
const kept = KEPT, unlessChosen = UNLESS_CHOSEN, links = "a[data-testid=stTopNavLink],a[data-testid=stSidebarNavLink],a[data-testid=stPageLink-NavLink],a.ov-go"
const carry = link => {
  const said = link.getAttribute("href"), here = new URLSearchParams(location.search), to = new URL(said || "/", location.href)
  if (to.origin !== location.origin) return
  const own = new Set((link.dataset.ovOwn ??= [...to.searchParams.keys()].join(" ")).split(" "))
  for (const name of [...kept, ...unlessChosen.filter(name => !own.has(name))])
    here.has(name) ? to.searchParams.set(name, here.get(name)) : to.searchParams.delete(name)
  if (said !== to.pathname + to.search) link.setAttribute("href", to.pathname + to.search)
}
let soon = 0
// Times are in UTC; where the reader's zone is another, its clock stands beside them.
const clock = text => new Date(text).toLocaleTimeString([], {hour12: false})
const localTime = place => {
  const {from, to} = place.dataset
  if (new Date(from).getTimezoneOffset()) place.textContent = ` (${clock(from)}${to ? ` to ${clock(to)}` : ""} your time)`
}
const all = () => { document.querySelectorAll(links).forEach(carry); document.querySelectorAll(".ov-local:empty").forEach(localTime) }
const later = () => { clearTimeout(soon); soon = setTimeout(all, 100) }
new MutationObserver(later).observe(document.getElementById("root"), {childList: true, subtree: true, attributeFilter: ["href"]})
// Streamlit takes every click for itself, one for a new tab or window too.
// A link of the pages' own HTML goes the way of Streamlit's link to the same page: without loading the program again, and as one step back.
addEventListener("click", event => {
  const go = event.target.closest?.("a.ov-go"), copy = event.target.closest?.("button.ov-copy")
  if (go && !(event.ctrlKey || event.metaKey || event.shiftKey)) {
    const to = new URL(go.href)
    const nav = [...document.querySelectorAll("a[data-testid=stTopNavLink]")].find(link => new URL(link.href).pathname === to.pathname)
    // Streamlit goes to an address that one step back or forward leads to: so it does to one with parameters of its own, which its links cannot have.
    if (nav) {
      event.preventDefault()
      if (go.dataset.ovOwn) { history.pushState({}, "", to.pathname + to.search); dispatchEvent(new PopStateEvent("popstate")) }
      else nav.click()
    }
  }
  const address = new URL(location.href), said = copy?.textContent
  if (copy?.dataset.from) {
    address.searchParams.delete("since")
    for (const edge of ["from", "to"]) address.searchParams.set(edge, copy.dataset[edge])
  }
  if (copy && said !== "Copied") navigator.clipboard.writeText(copy.dataset.from ? address.href : copy.previousElementSibling.textContent).then(() => {
    copy.textContent = "Copied"; setTimeout(() => { copy.textContent = said }, 2000) })
})
addEventListener("click", event => { if ((event.ctrlKey || event.metaKey || event.shiftKey) && event.target.closest?.(links)) event.stopPropagation() }, true)
for (const name of ["pointerover", "focusin"]) addEventListener(name, event => { const link = event.target.closest?.(links); if (link) carry(link) }, true)
})()</script>""".replace("UNLESS_CHOSEN", json.dumps(_KEPT_UNLESS_CHOSEN)).replace(
    "KEPT", json.dumps(_KEPT)
)
