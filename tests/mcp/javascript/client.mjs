// The official TypeScript client with `perdure mcp` over standard input and output.
// Arguments: the folder of the packages, then the command of the server.
import process from "node:process";

const [packages, command, ...args] = process.argv.slice(2);
const sdk = `${packages}/node_modules/@modelcontextprotocol/sdk/dist/esm/client`;
const { Client } = await import(`${sdk}/index.js`);
const { StdioClientTransport } = await import(`${sdk}/stdio.js`);

const client = new Client({ name: "test", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
const { tools } = await client.listTools();
await client.callTool({ name: "remember", arguments: { text: "The user likes tea" } });
const found = await client.callTool({ name: "recall", arguments: { query: "what does the user like?" } });
const { contents } = await client.readResource({ uri: "perdure://memories" });
await client.close();
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), found, contents }));
