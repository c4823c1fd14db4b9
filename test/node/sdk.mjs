// npm @modelcontextprotocol/sdk, the first generation of the TypeScript SDK: the legacy era.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { endpoint, fail, play, report } from './story.mjs';

async function main() {
  const client = new Client({ name: 'hydrant-test-sdk', version: '1.0.0' });
  const transport = new StreamableHTTPClientTransport(new URL(endpoint()));
  await client.connect(transport);
  const progress = [];
  const stepped = await client.callTool({ name: 'progress', arguments: { n: 3, ms: 20 } }, undefined, {
    onprogress: (p) => progress.push(p.progress),
  });
  const seen = {
    ...(await play(client)),
    protocol: transport.protocolVersion,
    session: transport.sessionId !== undefined,
    progress: progress.length,
    stepped: stepped.content[0].text,
  };
  await transport.terminateSession();
  await client.close();
  report(seen);
}

main().catch(fail);
