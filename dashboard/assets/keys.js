// Part of the page itself, before every other script: keeps the keys that nothing took, because a script was not
// loaded yet or the page that they are for is still being drawn.
{
  let waiting = []
  const isTyping = target => target.matches?.("input, textarea, select, [contenteditable]")
  addEventListener("keydown", event => {
    const isMeant = (event.key.length === 1 || event.key === "Enter") && !isTyping(event.target)
    if (isMeant) waiting = event.defaultPrevented ? [] : [...waiting, event]
  })
  document.forgetKeys = () => { waiting = [] }
  // in the order in which they were pressed, up to the first that another script must take
  document.replayKeys = (handle, isUnknown = () => false) => {
    while (waiting.length && !isTyping(document.activeElement)) {
      handle(waiting[0])
      if (!waiting[0].defaultPrevented && !isUnknown(waiting[0])) return
      waiting = waiting.slice(1)
    }
    // what follows a key that opened a field was typed for the field
    waiting = []
  }
}
