// Written by `perdure connect opencode`; `perdure disconnect opencode` removes it. It calls `perdure hook`.
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const COMMAND = [];
const OPTIONS = [];
const PATIENCE_MS = 10000;
const CHANGING = new Set(["bash", "edit", "write", "patch", "multiedit", "apply_patch"]);

// Returns what a hook says to the model. It fails open: whatever happens, the session goes on.
function hook(event, payload) {
  return new Promise((resolve) => {
    const [program, ...rest] = COMMAND;
    const args = [...rest, event, "--tool", "opencode", ...OPTIONS];
    const child = spawn(program, args, { stdio: ["pipe", "pipe", "ignore"], timeout: PATIENCE_MS });
    let said = "";
    child.stdout.on("data", (part) => (said += part));
    child.stdin.on("error", () => {});
    child.on("error", () => resolve(""));
    child.on("close", () => {
      try {
        resolve(JSON.parse(said).hookSpecificOutput.additionalContext);
      } catch {
        resolve("");
      }
    });
    child.stdin.end(JSON.stringify({ hook_event_name: event, ...payload }));
  });
}

const speak = ({ info, parts }) => ({
  type: "message",
  role: info.role,
  content: parts
    .filter((part) => (part.type === "text" && !part.synthetic) || part.type === "tool")
    .map((part) =>
      part.type === "text"
        ? { type: "text", text: part.text }
        : { type: "tool_use", name: part.tool, input: nameFile(part.state?.input) },
    ),
});

const nameFile = ({ filePath, ...rest } = {}) => (filePath ? { file_path: filePath, ...rest } : rest);

export const Perdure = async ({ client, directory }) => {
  const woken = new Map(); // what each session reads in every request: a compaction cannot lose it
  const recalled = new Map(); // the memories for its last prompt
  const about = (session) => ({ session_id: session, cwd: directory });

  // OpenCode keeps no transcript in a file: it is written for the time of the hook.
  async function handOff(event, session, more) {
    const folder = await mkdtemp(join(tmpdir(), "perdure-"));
    try {
      const { data } = await client.session.messages({ path: { id: session } });
      const path = join(folder, "transcript.json");
      await writeFile(path, JSON.stringify({ messages: (data ?? []).map(speak) }), { mode: 0o600 });
      await hook(event, { ...about(session), transcript_path: path, ...more });
    } catch {
      return; // fails open
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }

  return {
    "chat.message": async ({ sessionID }, { parts }) => {
      const prompt = parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text);
      recalled.set(sessionID, await hook("UserPromptSubmit", { ...about(sessionID), prompt: prompt.join("\n") }));
    },
    "experimental.chat.system.transform": async ({ sessionID }, { system }) => {
      if (!sessionID) return;
      if (!woken.has(sessionID)) {
        // A promise: the request for a title comes at the same time.
        woken.set(sessionID, hook("SessionStart", { ...about(sessionID), source: "startup" }));
      }
      system.push(...[await woken.get(sessionID), recalled.get(sessionID)].filter(Boolean));
    },
    "tool.execute.after": async ({ tool, sessionID, callID, args }, { output, metadata }) => {
      if (!CHANGING.has(tool)) return;
      const response = { output, exit_code: metadata?.exit ?? undefined };
      const call = { tool_name: tool, tool_input: nameFile(args), tool_response: response, tool_use_id: callID };
      await hook("PostToolUse", { ...about(sessionID), ...call });
    },
    "experimental.session.compacting": async ({ sessionID }) => {
      await handOff("PreCompact", sessionID, { trigger: "compaction" });
    },
    event: async ({ event }) => {
      if (event.type === "session.compacted") {
        const session = event.properties.sessionID;
        woken.set(session, hook("SessionStart", { ...about(session), source: "compact" }));
      } else if (event.type === "session.idle" && woken.has(event.properties.sessionID)) {
        await handOff("SessionEnd", event.properties.sessionID, { reason: "idle" });
      }
    },
  };
};
