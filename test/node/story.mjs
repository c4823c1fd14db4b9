// The story that every JavaScript client plays against the server, and the form in which it reports what it saw: one line
// of JSON, which the Go test in test/clients compares with what the server must have said.

/** The arguments of the echo call: characters of two, three and four bytes, and a nested object. */
export const echoArguments = { text: 'grüße 你好 🚀', nested: { list: [1, 'two', null] } };

/** endpoint is the one argument of every script. */
export function endpoint() {
  const url = process.argv[2];
  if (!url) throw new Error(`usage: node ${process.argv[1]} URL [mode]`);
  return url;
}

/**
 * play goes through the story with a connected client. Both generations of the TypeScript SDK name these methods alike.
 * onProgress wires progress into a call's options.
 */
export async function play(client) {
  const { tools } = await client.listTools();
  const { resources } = await client.listResources();
  const { prompts } = await client.listPrompts();
  const echo = await client.callTool({ name: 'echo', arguments: echoArguments });
  const failing = await client.callTool({ name: 'test_error_handling' });
  const resource = await client.readResource({ uri: 'test://static-text' });
  const templated = await client.readResource({ uri: 'test://template/42/data' });
  const prompt = await client.getPrompt({
    name: 'test_prompt_with_arguments',
    arguments: { arg1: 'first', arg2: 'zweites' },
  });
  return {
    server: client.getServerVersion()?.name,
    tools: tools.map((tool) => tool.name),
    resources: resources.map((r) => r.uri),
    prompts: prompts.map((p) => p.name),
    echo: JSON.parse(echo.content[0].text),
    structured: echo.structuredContent,
    failed: failing.isError === true,
    resource: resource.contents[0].text,
    templated: templated.contents[0].text,
    prompt: prompt.messages.map((m) => m.content.text).join('\n'),
  };
}

/** report prints what was seen, and ends the process: a client that leaves timers or sockets behind must not hang the test. */
export function report(seen) {
  process.stdout.write(JSON.stringify(seen) + '\n', () => process.exit(0));
}

/** fail prints the error with its causes and ends the process with 1. */
export function fail(err) {
  console.error(err);
  process.exit(1);
}
