// npm mcp-remote, which lets a client that knows only stdio talk to a server over HTTP: both eras.
// The second argument is what it speaks to the server: legacy (its default) or auto. In front of it is the first
// generation's client, as in the desktop applications that it is made for.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { endpoint, fail, play, report } from './story.mjs';

async function main() {
  const mode = process.argv[3] ?? 'legacy';
  const home = mkdtempSync(join(tmpdir(), 'mcp-remote-'));
  const args = [
    fileURLToPath(new URL('node_modules/mcp-remote/dist/proxy.js', import.meta.url)),
    endpoint(),
    '--allow-http',
    '--transport',
    'http-only',
    ...(mode === 'legacy' ? [] : ['--protocol', mode]),
  ];
  const transport = new StdioClientTransport({
    command: process.execPath,
    args,
    env: { ...process.env, MCP_REMOTE_CONFIG_DIR: home },
    stderr: 'inherit',
  });
  const client = new Client({ name: 'hydrant-test-remote', version: '1.0.0' });
  await client.connect(transport);
  const seen = { ...(await play(client)) };
  await client.close();
  rmSync(home, { recursive: true, force: true });
  report(seen);
}

main().catch(fail);
