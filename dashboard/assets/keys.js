// Part of the page itself, before every other script. Each part of the page says once which keys it takes; a key that
// none takes yet waits, because a script is not loaded or the page that it is for is still being drawn.
{
  const takers = {}
  let waiting = []
  const isTyping = target => target.matches?.("input:not([type=checkbox]), textarea, select, [contenteditable]")
  const isTaken = event => Object.values(takers).some(take => take(event))
  addEventListener("keydown", event => {
    const isPlain = !event.metaKey && !event.ctrlKey && !event.altKey
    const isMeant = event.key.length === 1 || event.key === "Enter"
    if (!isPlain || !isMeant || isTyping(event.target)) return
    waiting.push(event)
    if (!isTaken(event)) return
    event.preventDefault()
    // a key that is taken ends the wait of those before it
    waiting = []
  })
  document.forgetKeys = () => { waiting = [] }
  document.takeKeys = (part, take) => {
    takers[part] = take
    // in the order in which they were pressed: a later key may be for another row
    while (waiting.length && !isTyping(document.activeElement) && isTaken(waiting[0])) waiting.shift()
    // what follows a key that opened a field was typed for the field
    if (isTyping(document.activeElement)) waiting = []
  }
  // the row that was asked for last, by its key: the commit and the verdict of an address
  let chosenRow
  document.chooseRow = query => { chosenRow = `${query.get("commit")} ${query.get("verdict")}` }
  // React may draw the list once more as it was before the choice, also after the page of the chosen row: what was
  // chosen counts, and the mark of the list only if no row was chosen or it is gone
  document.openRow = () => {
    const rows = [...document.querySelectorAll("[data-row]")]
    return rows.find(row => row.dataset.row === chosenRow) ?? rows.find(row => row.hasAttribute("aria-current"))
  }
}
