// npm @modelcontextprotocol/client, the second generation of the TypeScript SDK, over streams: both eras.
// The second argument is legacy, or the version to pin.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { fail, report } from './story.mjs';
import { answers, capabilities, place, play, watchedFetch, within } from './streams.mjs';

async function main() {
  const at = place();
  const mode = process.argv[3] ?? 'legacy';
  const modern = mode !== 'legacy';
  const say = answers(at.think);
  const seen = await play(at, async (url, updated) => {
    const { open, fetch } = watchedFetch();
    const client = new Client(
      { name: 'hydrant-test-client', version: '1.0.0' },
      { capabilities, ...(modern ? { versionNegotiation: { mode: { pin: mode } } } : {}) },
    );
    for (const [method, answer] of Object.entries(say)) client.setRequestHandler(method, answer);
    client.setNotificationHandler('notifications/resources/updated', (n) => updated(n.params.uri));
    await client.connect(new StreamableHTTPClientTransport(new URL(url), { fetch }));
    return {
      modern,
      call: (name, args, options) => client.callTool({ name, arguments: args }, options),
      watch: async (uri) => {
        if (modern) {
          await client.listen({ resourceSubscriptions: [uri] });
          return;
        }
        await client.subscribeResource({ uri });
        await within(20_000, 'the stream did not open', open);
      },
      close: () => client.close(),
    };
  });
  report(seen);
}

main().catch(fail);
