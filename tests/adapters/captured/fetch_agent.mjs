// An agent in JavaScript: whole answers and streams, by `fetch`. It knows nothing of Perdure.
const [pid, provider] = [String(process.pid), process.argv[2]]
const headers = { "content-type": "application/json", authorization: "Bearer sk-secret", "x-pid": pid }

async function ask(messages, stream) {
  const body = JSON.stringify({ model: "gpt-4o", messages, stream })
  for (;;) {
    try {
      const answer = await fetch(`${process.env.OPENAI_BASE_URL}/chat/completions`, { method: "POST", headers, body })
      const text = await answer.text()
      if (answer.ok) return stream ? readStream(text) : JSON.parse(text).choices[0].message.content
    } catch (error) {
      if (!(error instanceof TypeError)) throw error // the proxy is away: ask again
    }
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

function readStream(text) {
  const lines = text.split("\n").filter((line) => line.startsWith("data: {"))
  return lines.map((line) => JSON.parse(line.slice(6)).choices[0].delta.content).join("")
}

const messages = []
for (let turn = 0; turn < 6; turn++) {
  messages.push({ role: "user", content: `question ${turn}` })
  messages.push({ role: "assistant", content: await ask(messages, turn % 2 === 1) })
  await fetch(`${provider}/log/${turn}/${pid}`)
}
console.log(messages.filter((message) => message.role === "assistant").map((message) => message.content).join("\n"))
