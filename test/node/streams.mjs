// What every JavaScript client plays over streams, and the form in which it reports how it went: one line of JSON, feature
// by feature, with an empty text for what went well. test/streams has the other side.

/** place is the first argument of every script: where to play, what, and how long the person thinks. */
export function place() {
  if (!process.argv[2]) throw new Error(`usage: node ${process.argv[1]} PLACE [mode]`);
  return JSON.parse(process.argv[2]);
}

/** answers are what the user, the model and the file system of the client say. */
export function answers(think) {
  return {
    'elicitation/create': async () => {
      await new Promise((resolve) => setTimeout(resolve, think));
      return { action: 'accept', content: { answer: 'yes' } };
    },
    'sampling/createMessage': async () => ({
      role: 'assistant',
      model: 'test',
      content: { type: 'text', text: 'Paris' },
    }),
    'roots/list': async () => ({ roots: [{ name: 'work', uri: 'file:///work' }] }),
  };
}

export const capabilities = { elicitation: {}, sampling: {}, roots: {} };

/** watchedFetch is a fetch, and a promise that is kept when the stream is open on which announcements come. */
export function watchedFetch() {
  let opened;
  const open = new Promise((resolve) => (opened = resolve));
  return {
    open,
    fetch: async (url, init) => {
      const response = await fetch(url, init);
      const headers = new Headers(init?.headers);
      if (init?.body === undefined && response.ok && !headers.has('last-event-id')) opened();
      return response;
    },
  };
}

const uri = 'test://watched-resource';

/**
 * play plays the features, all at the same time. connect(url, updated) opens a session:
 *   call(name, args, options)  calls a tool; options are onprogress and signal
 *   watch(uri)                 subscribes, and resolves when whatever happens from then on is heard by updated(uri)
 *   modern, close()
 */
export async function play({ url, suspended, cut, think, key, features }, connect) {
  const session = await connect(url, () => {});
  const message = 'May we go on?';
  const text = async (promise) => {
    const result = await promise;
    const all = result.content.map((c) => c.text).join('');
    if (result.isError) throw new Error(all);
    return all;
  };
  const expect = async (part, promise) => {
    const got = await text(promise);
    if (!got.includes(part)) throw new Error(`${JSON.stringify(got)} has no ${part}`);
  };
  const elsewhere = async (where, name, args) => {
    const other = await connect(where, () => {});
    try {
      return await other.call(name, args, {});
    } finally {
      await other.close();
    }
  };
  const plays = {
    elicit: () => expect('"answer":"yes"', session.call('ask', { message }, {})),
    rounds: () => expect('"answer":"yes"', session.call('ask_mrtr', { message }, {})),
    suspended: () => expect('"answer":"yes"', elsewhere(suspended, 'ask_mrtr', { message })),
    sampling: () =>
      session.modern
        ? expect('Paris', session.call('test_input_required_result_sampling', {}, {}))
        : expect('Paris', session.call('test_sampling', { prompt: 'The capital of France?' }, {})),
    roots: () => expect('file:///work', session.call('test_input_required_result_list_roots', {}, {})),
    progress: async () => {
      const steps = [];
      await expect('done', session.call('progress', { n: 5, ms: 50 }, { onprogress: (p) => steps.push(p.progress) }));
      if (steps.join() !== '1,2,3,4,5') throw new Error(`heard of the steps ${steps.join()}`);
    },
    cancel: () => cancelled(session, key),
    linger: async () => {
      await cancelled(session, key);
      await new Promise((resolve) => setTimeout(resolve, think));
    },
    resume: () => expect('slept 1500 ms', elsewhere(cut, 'sleep', { ms: 1500, key })),
    subscribe: async () => {
      let heard;
      const update = new Promise((resolve) => (heard = resolve));
      const watcher = await connect(url, (updated) => heard(updated));
      await watcher.watch(uri);
      await elsewhere(url, 'touch', { uri });
      const got = await within(20_000, 'no update', update);
      if (got !== uri) throw new Error(`an update of ${got}`);
      await watcher.close();
    },
  };
  const seen = {};
  await Promise.all(
    features.map(async (feature) => {
      try {
        await plays[feature]();
        seen[feature] = '';
      } catch (err) {
        seen[feature] = `${err?.message ?? err}`;
      }
    }),
  );
  await session.close();
  return seen;
}

/** cancelled cancels a call that would take long. Whether the tool was told shows in the tally. */
async function cancelled(session, key) {
  const abort = new AbortController();
  setTimeout(() => abort.abort(new Error('the user has changed her mind')), 1500);
  let result;
  try {
    result = await session.call('sleep', { ms: 60_000, key }, { signal: abort.signal });
  } catch {
    return;
  }
  throw new Error(`a cancelled call gave ${JSON.stringify(result)}`);
}

/** within gives what a promise gives, unless it takes too long. */
export function within(ms, what, promise) {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error(what)), ms)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
