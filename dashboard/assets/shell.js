// The header: links, choices and search change the address; the server draws the page of the new address.
// Streamlit adds a step back for each address. A page that completes its own, with its defaults, is the same step.
const hasAll = (query, parameters) => [...parameters].every(([name, value]) => query.getAll(name).includes(value))
const addStep = history.pushState
history.pushState = (state, title, address) => {
  const url = new URL(address, location.href)
  const isCompleted = url.pathname === location.pathname && hasAll(url.searchParams, new URLSearchParams(location.search))
  if (isCompleted && !document.isFollowing) history.replaceState(state, title, address)
  else addStep.call(history, state, title, address)
  document.isFollowing = false
}
const isPlain = event => event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey

export default ({ data, parentElement, setTriggerValue, setStateValue }) => {
  const root = parentElement.querySelector(".rw-shell")
  const results = () => root.querySelector(".rw-results")
  // drawn again only if it changed, so that the search keeps its text while somebody types
  if (root.drawnBar !== data.bar) {
    root.innerHTML = data.bar
    root.drawnBar = data.bar
  }
  results().innerHTML = data.results

  // the address holds the marked rows; the browser knows of marks that the server has not drawn yet
  const marks = () => document.markedRows ??= new Set(new URLSearchParams(location.search).getAll("marked"))
  window.onpopstate = () => {
    document.markedRows = undefined
    document.chooseRow(new URLSearchParams(location.search))
  }
  // with the row whose page is asked for, if it is one of a list
  const go = (href, row) => {
    if (row) {
      document.querySelectorAll("[data-row][aria-current]").forEach(other => other.removeAttribute("aria-current"))
      row.setAttribute("aria-current", "true")
    }
    const url = new URL(href, document.baseURI)
    const query = url.searchParams
    document.chooseRow(query)
    const isSameProject = query.get("project") === new URLSearchParams(location.search).get("project")
    // the link that removes all marks asks for none
    if (query.has("marked") || !isSameProject) marks().clear()
    query.delete("marked")
    marks().forEach(row => query.append("marked", row))
    document.isFollowing = true
    setTriggerValue("go", url.pathname.split("/").pop() + url.search)
  }
  const toggleMark = row => {
    const name = row.dataset.row
    const isMarked = !marks().delete(name)
    if (isMarked) marks().add(name)
    row.querySelector(".rw-check input").checked = isMarked
    // the open row stays open
    const open = document.openRow() ?? row
    go(open.querySelector("a[href]").href, open)
  }
  // assigned rather than added: the page of another view has a header of its own, which takes over
  document.onclick = event => {
    if (!root.isConnected) return
    const row = event.target.closest("[data-row]")
    if (event.target.closest(".rw-check")) {
      // a click on the label is followed by one on its box
      if (event.target.matches("input")) toggleMark(row)
      return
    }
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
    // where the browser forbids copying, the link is followed, and its address stands above the page
    if (link.dataset.copy !== undefined && navigator.clipboard) {
      navigator.clipboard.writeText(link.href).then(() => { link.textContent = "Link copied" }, () => go(link.href))
      return
    }
    document.forgetKeys()
    go(link.href, row)
  }
  root.onchange = event => {
    const address = event.target.dataset.address
    if (address !== undefined) go(address + encodeURIComponent(event.target.value))
  }
  root.onsubmit = event => {
    event.preventDefault()
    const query = new URLSearchParams(new FormData(event.target))
    go(event.target.getAttribute("action") + "?" + query)
  }
  let timer
  root.oninput = event => {
    if (event.target.type !== "search") return
    clearTimeout(timer)
    // with the time, so that the same text can be searched again
    timer = setTimeout(() => setStateValue("search", { text: event.target.value, at: Date.now() }), 200)
  }
  const openSearch = () => {
    const field = root.querySelector("input[type=search]")
    field.focus()
    field.select()
  }
  document.onkeydown = event => {
    if (event.key !== "k" || !(event.ctrlKey || event.metaKey)) return
    event.preventDefault()
    openSearch()
  }
  // in the search: arrows choose a result, Enter the first
  root.onkeydown = event => {
    const field = root.querySelector("input[type=search]")
    const links = [...results().querySelectorAll("a")]
    const place = links.indexOf(document.activeElement)
    if (event.target !== field && place < 0) return
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
  // j and k choose the next and the previous row, Enter opens it, x marks it
  const rowOf = event => {
    const rows = [...document.querySelectorAll("[data-row]")]
    const place = rows.indexOf(document.openRow())
    const step = { j: 1, k: -1 }[event.key]
    if (step !== undefined) return rows[Math.max(0, Math.min(place + step, rows.length - 1))]
    const isOnPage = event.target === document.body || event.target.closest("[data-row]")
    if (event.key === "Enter" && isOnPage) return rows[place]
  }
  document.takeKeys("header", event => {
    const row = rowOf(event)
    const marked = event.key === "x" ? document.openRow() : undefined
    if (event.key === "/") openSearch()
    else if (marked?.querySelector(".rw-check")) toggleMark(marked)
    else if (row) {
      row.scrollIntoView({ block: "nearest" })
      go(row.querySelector("a[href]").href, row)
    }
    return event.key === "/" || marked !== undefined || row !== undefined
  })
}
