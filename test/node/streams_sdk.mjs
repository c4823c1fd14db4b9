// npm @modelcontextprotocol/sdk, the first generation of the TypeScript SDK, over streams: the legacy era.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  ResourceUpdatedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { fail, report } from './story.mjs';
import { answers, capabilities, place, play, watchedFetch, within } from './streams.mjs';

async function main() {
  const at = place();
  const say = answers(at.think);
  const seen = await play(at, async (url, updated) => {
    const { open, fetch } = watchedFetch();
    const client = new Client({ name: 'hydrant-test-sdk', version: '1.0.0' }, { capabilities });
    client.setRequestHandler(ElicitRequestSchema, say['elicitation/create']);
    client.setRequestHandler(CreateMessageRequestSchema, say['sampling/createMessage']);
    client.setRequestHandler(ListRootsRequestSchema, say['roots/list']);
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, (n) => updated(n.params.uri));
    await client.connect(new StreamableHTTPClientTransport(new URL(url), { fetch }));
    return {
      modern: false,
      call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options),
      watch: async (uri) => {
        await client.subscribeResource({ uri });
        await within(20_000, 'the stream did not open', open);
      },
      close: () => client.close(),
    };
  });
  report(seen);
}

main().catch(fail);
