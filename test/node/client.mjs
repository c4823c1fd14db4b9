// npm @modelcontextprotocol/client, the second generation of the TypeScript SDK: both eras.
// The second argument is the negotiation: legacy (the client's default), auto, or a version to pin.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { endpoint, fail, play, report } from './story.mjs';

async function main() {
  const mode = process.argv[3] ?? 'legacy';
  const options = mode === 'legacy' ? {} : { versionNegotiation: { mode: mode === 'auto' ? 'auto' : { pin: mode } } };
  const client = new Client({ name: 'hydrant-test-client', version: '1.0.0' }, options);
  const transport = new StreamableHTTPClientTransport(new URL(endpoint()));
  await client.connect(transport);
  const progress = [];
  const stepped = await client.callTool(
    { name: 'progress', arguments: { n: 3, ms: 20 } },
    { onprogress: (p) => progress.push(p.progress) },
  );
  const seen = {
    ...(await play(client)),
    protocol: client.getNegotiatedProtocolVersion(),
    session: transport.sessionId !== undefined,
    progress: progress.length,
    stepped: stepped.content[0].text,
  };
  if (transport.sessionId !== undefined) await transport.terminateSession();
  await client.close();
  report(seen);
}

main().catch(fail);
