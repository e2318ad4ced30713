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
  document.replayKeys = handle => {
    const pressed = waiting
    waiting = []
    for (const event of pressed) {
      // what follows a key that opened a field was typed for the field
      if (isTyping(document.activeElement)) return
      handle(event)
      waiting = event.defaultPrevented ? [] : [...waiting, event]
    }
  }
}
