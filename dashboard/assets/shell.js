// The header: links, choices and search change the address; the server draws the page of the new address.
const isPlain = event => event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey
const isTyping = target => target.closest("input, textarea, select, [contenteditable]")

export default ({ data, parentElement, setTriggerValue, setStateValue }) => {
  const root = parentElement.querySelector(".rw-shell")
  const results = () => root.querySelector(".rw-results")
  // drawn again only if it changed, so that the search keeps its text while somebody types
  if (root.drawnBar !== data.bar) {
    root.innerHTML = data.bar
    root.drawnBar = data.bar
  }
  results().innerHTML = data.results

  const go = href => {
    document.chosenRow = undefined
    const url = new URL(href, document.baseURI)
    setTriggerValue("go", url.pathname.split("/").pop() + url.search)
  }
  const markRow = row => {
    document.querySelectorAll("[data-row][aria-current]").forEach(marked => marked.removeAttribute("aria-current"))
    row.setAttribute("aria-current", "true")
    // the old list may be drawn once more, without this mark, until the page of the row is there
    document.chosenRow = row.dataset.row || undefined
  }
  const onClick = event => {
    const row = event.target.closest("[data-row]")
    const link = event.target.closest("a[href]") ?? (row && row.querySelector("a[href]"))
    if (!link) {
      if (!event.target.closest(".rw-find")) results().innerHTML = ""
      const open = root.querySelector("details[open]")
      if (open && !open.contains(event.target)) open.open = false
      return
    }
    const isElsewhere = link.origin !== location.origin || link.target === "_blank" || link.hasAttribute("download")
    const isPart = link.getAttribute("href").startsWith("#")
    if (event.defaultPrevented || !isPlain(event) || isElsewhere || isPart) return
    event.preventDefault()
    document.forgetKeys()
    go(link.href)
    if (row) markRow(row)
  }
  const onChange = event => {
    const address = event.target.dataset.address
    if (address !== undefined) go(address + encodeURIComponent(event.target.value))
  }
  const onSubmit = event => {
    event.preventDefault()
    const query = new URLSearchParams(new FormData(event.target))
    go(event.target.getAttribute("action") + "?" + query)
  }
  // j and k choose the next and the previous row, Enter opens it
  const onRowKey = event => {
    const rows = [...document.querySelectorAll("[data-row]")]
    const step = { j: 1, k: -1 }[event.key]
    const place = rows.findIndex(row => row.hasAttribute("aria-current"))
    const isOnPage = event.target === document.body || event.target.closest("[data-row]")
    const next = step === undefined ? rows[place] : rows[Math.max(0, Math.min(place + step, rows.length - 1))]
    if (!next || (step === undefined && !(event.key === "Enter" && isOnPage))) return
    event.preventDefault()
    next.scrollIntoView({ block: "nearest" })
    go(next.querySelector("a[href]").href)
    markRow(next)
  }
  let timer
  const onInput = event => {
    if (event.target.type !== "search") return
    clearTimeout(timer)
    // with the time, so that the same text can be searched again
    timer = setTimeout(() => setStateValue("search", { text: event.target.value, at: Date.now() }), 200)
  }
  const onKey = event => {
    const field = root.querySelector("input[type=search]")
    const isSlash = event.key === "/" && !isTyping(event.target)
    if (isSlash || (event.key === "k" && (event.ctrlKey || event.metaKey))) {
      event.preventDefault()
      field.focus()
      field.select()
    }
    if (!isTyping(event.target) && !event.metaKey && !event.ctrlKey && !event.altKey) onRowKey(event)
    const links = [...results().querySelectorAll("a")]
    const place = links.indexOf(document.activeElement)
    const isInside = event.target === field || place >= 0
    if (!isInside) return
    if (event.key === "Escape") {
      results().innerHTML = ""
      field.blur()
    } else if (event.key === "ArrowDown" && links.length) {
      event.preventDefault()
      links[Math.min(place + 1, links.length - 1)].focus()
    } else if (event.key === "ArrowUp") {
      event.preventDefault()
      place > 0 ? links[place - 1].focus() : field.focus()
    } else if (event.key === "Enter" && event.target === field && links.length) {
      event.preventDefault()
      go(links[0].href)
    }
  }
  const listeners = [
    [document, "click", onClick], [root, "change", onChange], [root, "submit", onSubmit], [root, "input", onInput],
    [document, "keydown", onKey],
  ]
  const remove = () => listeners.forEach(([target, name, listener]) => target.removeEventListener(name, listener))
  // a header of a page that was left would take the click, and its message would reach nobody
  document.removeShellListeners?.()
  document.removeShellListeners = remove
  listeners.forEach(([target, name, listener]) => target.addEventListener(name, listener))
  document.replayShellKeys = () => document.replayKeys(onKey)
  document.replayShellKeys()
  return remove
}
