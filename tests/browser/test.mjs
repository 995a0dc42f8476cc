import { join } from 'node:path';
import { Server, axe, browse, check, equal, run, until, watch } from './support.mjs';

const server = await Server.start();
const guarded = await Server.start({ tokens: [['admin', 'admin'], ['looker', 'view', 'acme'], ['op', 'operate', 'acme']] });
const { context, close } = await browse();
const faults = [];
let allowed = () => false;
const page = await context.newPage();
watch(page, () => server.url, faults, { allow: (text) => allowed(text) });
const shot = (name, of = page) => of.screenshot({ path: join(process.env.HAUL_SHOTS, `${name}.png`) });
const go = async (path, of = page, at = server) => {
  await of.goto(`${at.url}/ui/${path}`);
  await of.waitForFunction(() => document.querySelector('main h1') && !document.querySelector('main').textContent.includes('Loading…'));
};
const text = (of = page) => of.locator('main').innerText();
const says = (words, of = page) => until(`the page says ${words}`, async () => (await text(of)).includes(words));
const press = (name, of = page) => of.locator('main').getByRole('button', { name, exact: true }).first().click();
const answer = async (values, go_, of = page) => {
  const dialog = of.locator('dialog[open]');
  for (const [name, value] of Object.entries(values)) await dialog.locator(`[name="${name}"]`).fill(value);
  await dialog.getByRole('button', { name: go_, exact: true }).click();
};

async function accessible(of, where) {
  await of.evaluate(axe);
  const found = await of.evaluate(async () => (await globalThis.axe.run(document, { resultTypes: ['violations'] })).violations
    .filter((one) => ['serious', 'critical'].includes(one.impact)).map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} ${node.any[0]?.message ?? ''}`).join(' | ')}`));
  equal(found, [], `axe finds faults on ${where}`);
}

const hostile = {
  html: '<img src=x onerror="window.hit=1"><script>window.hit=1</script>',
  quote: '"\'><svg/onload=window.hit=1>',
  control: 'a\u0000b\u001b[2J\u0007\r\nc',
  rtl: '\u202egnp.exe\u2066x',
  url: 'javascript:window.hit=1',
  path: '../../x%2f?y#z',
  template: '{{7*7}}${7*7}',
};

async function seed() {
  for (let number = 0; number < 120; number += 1) await server.put({ queue: 'mail', klass: 'SendMail', jid: `mail-${number}`, data: { to: `user${number}@example.org`, n: number }, tags: number % 3 ? ['campaign'] : ['campaign', 'vip'], priority: number % 5 });
  await server.put({ queue: 'video', klass: 'Transcode', jid: 'later', data: {}, delay: 3600 });
  await server.put({ queue: 'video', klass: 'Transcode', jid: 'first', data: { file: 'a.mp4' } });
  await server.put({ queue: 'video', klass: 'Publish', jid: 'after', data: {}, depends: ['first', 'later'] });
  await server.put({ queue: 'video', klass: 'Notify', jid: 'last', data: {}, depends: ['after'] });
  await server.ask('PUT', '/throttles/licence', { maximum: 1 });
  for (const jid of ['t1', 't2']) await server.put({ queue: 'render', klass: 'Render', jid, data: {}, throttles: ['licence'] });
  await server.pop('render', 'gpu-1');
  await server.pop('render', 'gpu-1');
  await server.pop('mail', 'host-1', 3);
  for (let number = 0; number < 8; number += 1) await server.fail('flaky', `bad-${number}`, number < 6 ? 'smtp-down' : 'bad-address');
  for (let number = 0; number < 20; number += 1) {
    await server.put({ queue: 'done', klass: 'Count', jid: `done-${number}`, data: {} });
    await server.pop('done');
    await server.post(`/jobs/done-${number}/complete`, { worker: 'w1', result: { answer: 42, big: 12345678901234567890n.toString() } });
  }
  await server.post('/recurring', { queue: 'cron', klass: 'Report', jid: 'daily', interval: 86400, offset: 3600, data: { kind: 'daily' } });
  await server.ask('PATCH', '/queues/paused', { paused: true });
  await server.put({ queue: 'paused', klass: 'Stuck', jid: 'stuck', data: {} });
  await server.ask('PUT', '/jobs/mail-5/track');
}

const tests = [
  ['the overview shows every queue, its counts and what is wrong', async () => {
    await go('');
    await says('mail');
    const row = page.locator('tr', { hasText: 'mail' }).first();
    const cells = await row.locator('td').allInnerTexts();
    equal([cells[0], cells[1], cells[3]], ['mail', '117', '3'], 'the row of mail');
    await says('The queue paused is paused; 1 job waits in it.');
    check(await page.locator('figure svg').count() === 3, 'three charts');
    equal(await page.title(), 'Overview · Haul');
    await shot('overview');
    await accessible(page, 'the overview');
    await page.getByRole('button', { name: 'waiting' }).click();
    await until('the queue with most waiting is first', async () => (await page.locator('tbody tr td').first().innerText()) === 'mail');
    await page.locator('.troubles a', { hasText: 'paused' }).click();
    await says('Resume');
  }],
  ['live: what happens is shown without a reload and without losing the place', async () => {
    await go('');
    await page.evaluate(() => { window.marked = document.querySelector('main h1'); });
    await page.locator('tr[data-row] a').first().focus();
    await server.put({ queue: 'brand-new', klass: 'k', jid: 'bn-1', data: {} });
    await says('brand-new');
    check(await page.evaluate(() => window.marked === document.querySelector('main h1')), 'the page was drawn anew');
    check(await page.evaluate(() => document.activeElement.closest('tr') !== null), 'the focus was lost');
    await server.ask('DELETE', '/jobs/bn-1');
  }],
  ['a lost connection is shown and heals', async () => {
    allowed = (words) => /ERR_|Failed to load/.test(words);
    await go('');
    await until('it is live', async () => (await page.locator('#live').innerText()) === 'live');
    await server.stop();
    await until('the loss is shown', async () => (await page.locator('#live').innerText()).includes('connection lost'));
    await server.run(server.redis, server.http);
    await until('it is live again', async () => (await page.locator('#live').innerText()) === 'live', 30);
    await server.put({ queue: 'healed', klass: 'k', jid: 'healed-1', data: {} });
    await says('healed');
    await server.ask('DELETE', '/jobs/healed-1');
    allowed = () => false;
  }],
  ['a queue: its lists page by cursor, its histograms are drawn', async () => {
    await go('queue?name=mail');
    await says('waiting 117');
    equal(await page.locator('tr[data-row]').count(), 50, 'jobs of the first page');
    const first = await page.locator('tr[data-row] a').first().innerText();
    await page.getByRole('link', { name: 'Next page' }).click();
    await until('the next page', async () => (await page.locator('tr[data-row] a').first().innerText()) !== first);
    check(page.url().includes('cursor='), 'the address names the page');
    await page.getByRole('link', { name: /^running/ }).click();
    await says('host-1');
    equal(await page.locator('tr[data-row]').count(), 3);
    await go('queue?name=done');
    check(await page.locator('figure .bars rect').count() > 10, 'histograms are drawn');
    await says('20 jobs');
    await shot('queue');
    await accessible(page, 'a queue');
  }],
  ['a queue: pause, resume, concurrency, heartbeat', async () => {
    await go('queue?name=mail');
    await press('Pause');
    await until('it is paused', async () => (await server.get('/queues/mail')).paused);
    await press('Resume');
    await until('it is not', async () => !(await server.get('/queues/mail')).paused);
    await press('Change Concurrency');
    await answer({ value: '3' }, 'Set');
    await until('the limit is set', async () => (await server.get('/config')).options['mail-max-concurrency'] === '3');
    await press('Change Heartbeat');
    await answer({ value: '90' }, 'Set');
    await until('the heartbeat is set', async () => (await server.get('/config')).options['mail-heartbeat'] === '90');
    await says('90');
    await press('Change Concurrency');
    await answer({ value: '' }, 'Set');
    await until('the limit is gone', async () => (await server.get('/config')).options['mail-max-concurrency'] === undefined);
  }],
  ['a job says why it is not running', async () => {
    for (const [jid, words] of [['after', 'It waits for 2 jobs to complete.'], ['later', 'It is scheduled'], ['t2', 'throttle licence'], ['stuck', 'is paused'], ['t1', 'gpu-1 holds its lock'], ['mail-50', 'ahead of it'], ['bad-0', 'smtp-down']]) {
      await go(`job?jid=${jid}`);
      await until(`${jid}: ${words}`, async () => (await page.locator('#why').innerText()).includes(words));
    }
    await go('job?jid=after');
    equal(await page.locator('svg .node').count(), 4, 'the graph');
    await accessible(page, 'a job');
    await page.locator('svg a.node').first().click();
    await until('the other job', () => page.url().includes('jid=first'));
    await go('job?jid=bad-0');
    await says('ConnectionError: refused');
    await shot('job');
    await go('job?jid=done-0');
    await says('"answer": 42');
    await go('job?jid=none');
    await says('there is no job none');
  }],
  ['numbers that a browser cannot hold are shown as they were written', async () => {
    await fetch(`${server.url}/api/v1/jobs`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"queue":"big","klass":"k","jid":"big","data":{"n":12345678901234567890,"x":1.10}}' });
    await go('job?jid=big');
    await says('12345678901234567890');
    await says('1.10');
    await press('Put one like this…');
    await answer({ queue: 'big2' }, 'Put');
    await until('a copy is there', async () => (await server.get('/queues/big2')).waiting === 1);
    const copy = await (await fetch(`${server.url}/api/v1/jobs?queue=big2`)).text();
    check(copy.includes('"n":12345678901234567890') || copy.includes('"n": 12345678901234567890'), copy);
  }],
  ['a job: retry, requeue, priority, tags, track, cancel, undo', async () => {
    await go('job?jid=bad-7');
    await press('Retry');
    await until('it waits', async () => (await server.job('bad-7')).state === 'waiting');
    await press('Requeue…');
    await answer({ queue: 'elsewhere' }, 'Requeue');
    await until('it is elsewhere', async () => (await server.job('bad-7')).queue === 'elsewhere');
    await press('Priority…');
    await answer({ value: '7' }, 'Set');
    await until('its priority', async () => (await server.job('bad-7')).priority === 7);
    await press('Tag…');
    await answer({ tags: 'red, blue' }, 'Add');
    await until('its tags', async () => (await server.job('bad-7')).tags.length === 2);
    await press('Take off the tag red');
    await until('one tag', async () => (await server.job('bad-7')).tags.join() === 'blue');
    await press('Track');
    await until('it is tracked', async () => (await server.job('bad-7')).tracked);
    await press('Untrack');
    await until('it is not', async () => !(await server.job('bad-7')).tracked);
    await press('Cancel…');
    await answer({}, 'Cancel the job');
    await until('it is gone', async () => server.job('bad-7').then(() => false, (error) => error.status === 404));
    await page.getByRole('button', { name: 'Put it again' }).click();
    await until('it is back', async () => (await server.job('bad-7')).tags.join() === 'blue');
    await server.ask('DELETE', '/jobs/bad-7');
  }],
  ['a running job shows how far it is and what it prints, as it prints it', async () => {
    await server.put({ queue: 'prints', klass: 'k', jid: 'prints', data: {} });
    await server.pop('prints');
    await server.redisSay('HAUL.REPORT', 'w1', 'prints', 'PERCENT', 40, 'MESSAGE', 'page 4', 'OUTPUT', 'line one\n<b>line</b> two\n');
    await go('job?jid=prints');
    await says('40% page 4');
    await says('<b>line</b> two');
    await server.redisSay('HAUL.REPORT', 'w1', 'prints', 'PERCENT', 90, 'OUTPUT', 'line three\n');
    await says('line three');
    await says('90% page 4');
    await accessible(page, 'a running job');
    await server.ask('DELETE', '/jobs/prints');
  }],
  ['a running job is cancelled', async () => {
    await server.put({ queue: 'run', klass: 'k', jid: 'running-1', data: {} });
    await server.pop('run');
    await go('job?jid=running-1');
    await press('Cancel…');
    await answer({}, 'Cancel the job');
    await until('it is gone', async () => server.job('running-1').then(() => false, (error) => error.status === 404));
  }],
  ['failures: a group is retried, moved, cancelled; an operation can be undone', async () => {
    await go('failures');
    await says('smtp-down');
    await shot('failures');
    await accessible(page, 'failures');
    const row = page.locator('tr', { hasText: 'smtp-down' }).first();
    await row.getByRole('button', { name: 'Cancel all…' }).click();
    await answer({}, 'Cancel all');
    await page.locator('#toasts').getByRole('button', { name: 'Undo' }).click();
    await until('it is undone', async () => (await page.locator('#toasts').innerText()).includes('undone: nothing was changed'));
    equal((await server.get('/failures')).groups.find((group) => group.name === 'smtp-down').jobs, 6);
    await row.getByRole('button', { name: 'Move all…' }).click();
    await answer({ queue: 'second-try' }, 'Move all');
    await until('they are moved', async () => (await server.get('/queues/second-try')).waiting === 6);
    await until('it is told', async () => (await page.locator('#toasts').innerText()).includes('6 moved'));
    for (let number = 0; number < 3; number += 1) await server.fail('flaky', `again-${number}`, 'oops');
    await go('failures?group=oops');
    await says('again-1');
    await press('Retry all');
    await answer({}, 'Retry all');
    await until('they wait', async () => (await server.get('/queues/flaky')).waiting === 3);
  }],
  ['search finds by jid, klass, queue, tag, worker, group, state and text', async () => {
    await go('');
    const find = async (words) => { await page.locator('#q').fill(words); await page.locator('#q').press('Enter'); };
    await find('mail-7');
    await until('the job itself', () => page.url().includes('/ui/job?jid=mail-7'));
    for (const [words, count] of [['tag:vip state:waiting', (await server.get('/jobs?tag=vip&state=waiting&limit=100')).jobs.length], ['klass:Transcode', 2], ['worker:host-1', 3], ['user11@', 1], ['queue:paused', 1], ['state:failed group:bad-address', 1]]) {
      await find(words);
      await until(`${words} finds ${count}`, async () => (await page.locator('tr[data-row]').count()) === count);
    }
    check(page.url().includes('state=failed') && page.url().includes('group=bad-address'), 'the address can be shared');
    await page.reload();
    await until('the same after a reload', async () => (await page.locator('tr[data-row]').count()) === 1);
    await find('tag:campaign klass:SendMail text-that-is-nowhere');
    await says('No job matches.');
    await find('queue:second-try');
    await until('six', async () => (await page.locator('tr[data-row]').count()) === 6);
    await press('Cancel all…');
    await answer({}, 'Cancel all');
    await until('they are gone', async () => (await server.get('/queues/second-try')).waiting === 0);
    await shot('search');
    await accessible(page, 'search');
  }],
  ['the other views', async () => {
    for (const [path, words] of [['workers', 'host-1'], ['worker?name=host-1', 'Running 3'], ['tracked', 'mail-5'], ['tags', 'campaign'], ['completed', 'done-1'], ['recurring', 'every day'], ['recurring?jid=daily', '"kind": "daily"'], ['handlers', 'There are no handlers'], ['tenants', 'default'], ['throttles', 'licence'], ['throttles?id=licence', 't1'], ['config', 'jobs-history'], ['audit', 'cancel'], ['system', 'haul_commands_total'], ['system', 'Not in the store yet'], ['nowhere', 'There is no such page']]) {
      await go(path);
      await says(words);
      if (path !== 'nowhere') await accessible(page, path);
    }
  }],
  ['recurring jobs and cron: add, run now, pause, edit, end; next runs in plain words', async () => {
    await go('recurring');
    await press('Run now');
    await until('a job of it is made', async () => (await server.job('daily-1')).spawned_from === 'daily');
    equal((await server.get('/queues/cron')).waiting, 1);
    await press('New recurring job…');
    await answer({ queue: 'reports', klass: 'Report', cron: '30 9 * * mon-fri', timezone: 'Europe/Berlin', jid: 'weekdays', data: '{"n":1}' }, 'Add');
    await until('it is added', async () => (await server.get('/recurring/weekdays')).cron === '30 9 * * mon-fri');
    await says('At 09:30, on Monday, Tuesday');
    await go('recurring?jid=weekdays');
    await says('Europe/Berlin');
    equal(await page.locator('ul.plain li').count(), 5, 'the next runs');
    await shot('recurring');
    await accessible(page, 'a recurring job');
    await press('Pause');
    await until('it is paused', async () => (await server.get('/recurring/weekdays')).paused);
    await press('Resume');
    await until('it goes on', async () => !(await server.get('/recurring/weekdays')).paused);
    await press('Change…');
    allowed = (words) => words.includes('400');
    await answer({ cron: 'every monday' }, 'Change');
    await until('what is wrong is told', async () => (await page.locator('#toasts').innerText()).includes('is no cron pattern'));
    allowed = () => false;
    await press('Change…');
    await answer({ cron: '0 8 * * *', timezone: '' }, 'Change');
    await until('it is changed', async () => (await server.get('/recurring/weekdays')).timezone === 'UTC');
    await press('Change…');
    await answer({ cron: '', timezone: '', interval: '60' }, 'Change');
    await until('it has an interval', async () => { const one = await server.get('/recurring/weekdays'); return one.cron === null && one.interval === 60; });
    await press('End…');
    await answer({}, 'End it');
    await until('it is ended', async () => server.get('/recurring/weekdays').then(() => false, (error) => error.status === 404));
  }],
  ['recurring, throttles and options are changed', async () => {
    await go('recurring');
    await press('Change…');
    await answer({ interval: '3600' }, 'Change');
    await until('it is changed', async () => (await server.get('/recurring/daily')).interval === 3600);
    await says('every hour');
    await press('End…');
    await answer({}, 'End it');
    await until('it is ended', async () => (await server.get('/recurring')).recurring.length === 0);
    await go('throttles');
    await press('New throttle…');
    await answer({ id: 'new-one', maximum: '4' }, 'Set');
    await until('it is set', async () => (await server.get('/throttles/new-one')).maximum === 4);
    await go('throttles?id=new-one');
    await press('Delete…');
    await answer({}, 'Delete');
    await until('it is deleted', async () => server.get('/throttles/new-one').then(() => false, () => true));
    await go('config');
    await press('Change jobs-history');
    await answer({ value: '1000000' }, 'Set');
    await until('it is set', async () => (await server.get('/config')).options['jobs-history'] === '1000000');
    await press('Default of jobs-history');
    await until('it is back', async () => (await server.get('/config')).options['jobs-history'] === '604800');
  }],
  ['handlers with their versions and outcomes, and tenants', async () => {
    const say = async (path, type, body) => (await fetch(`${server.url}${path}`, { method: 'POST', headers: { 'content-type': type }, body })).json();
    await say('/shop/handler/greet/add', 'application/json', JSON.stringify({ lang: 'sh', body: 'exit 4 # <old>' }));
    await say('/shop/handler/greet/add', 'application/json', JSON.stringify({ lang: 'sh', body: 'cat >/dev/null; echo "<b>hello</b>"' }));
    await say('/shop/job/greet/add', 'text/plain', 'one\ntwo\n');
    await go('tenants');
    await says('shop');
    await page.locator('tr', { hasText: 'shop' }).getByRole('link').click();
    await until('the tenant is chosen', async () => (await page.locator('#who').innerText()).includes('tenant shop'));
    await go('handlers?tenant=shop');
    await says('greet');
    await until('both jobs have been run', async () => (await page.locator('tr', { hasText: 'greet' }).locator('td').nth(4).innerText()) === '2');
    await page.locator('tr', { hasText: 'greet' }).getByRole('link').first().click();
    await says('echo "<b>hello</b>"');
    equal(await page.locator('tr[data-row]').count(), 2, 'versions');
    await shot('handler');
    await accessible(page, 'a handler');
    await go('');
  }],
  ['long lists come page by page', async () => {
    for (let begin = 0; begin < 130; begin += 10) {
      await Promise.all(Array.from({ length: 10 }, async (_, at) => {
        const n = begin + at;
        await server.put({ queue: `many-${n}`, klass: 'k', jid: `many-${n}`, data: {} });
        await server.pop(`many-${n}`, `many-worker-${n}`);
        await server.ask('PUT', `/jobs/many-${n}/track`);
        await server.post(`/jobs/many-${n}/fail`, { worker: `many-worker-${n}`, group: `many-group-${n}`, message: 'm' });
        await server.ask('PUT', `/throttles/many-${n}`, { maximum: 1 });
        await server.ask('PUT', `/config/many-${n}`, { value: '1' });
        await server.post('/recurring', { queue: 'many-0', klass: 'k', jid: `many-${n}`, interval: 1e6, offset: 1e6 });
      }));
    }
    for (const view of ['failures', 'workers', 'tracked', 'recurring', 'throttles', 'config', 'queue?name=many-0&state=recurring']) {
      await go(view);
      const rows = page.locator('tr[data-row]');
      check(await rows.count() <= 130 && await rows.count() >= 100, `${view}: ${await rows.count()} rows`);
      const name = () => rows.first().locator('td').first().innerText();
      const first = await name();
      await page.getByRole('link', { name: 'Next page' }).click();
      await until(`${view}: the next page`, async () => page.url().includes('cursor=') && (await name()) !== first);
      check(await rows.count() > 0, `${view}: nothing on the second page`);
      await accessible(page, `${view}, second page`);
      await page.getByRole('link', { name: 'First page' }).click();
      await until(`${view}: the first page`, async () => !page.url().includes('cursor=') && (await rows.count()) >= 100);
    }
    for (let n = 0; n < 130; n += 1) {
      await server.ask('DELETE', `/jobs/many-${n}`);
      await server.ask('DELETE', `/throttles/many-${n}`);
      await server.ask('DELETE', `/config/many-${n}`);
      await server.ask('DELETE', `/recurring/many-${n}`);
      await server.ask('DELETE', `/workers/many-worker-${n}`);
      await server.ask('DELETE', `/jobs/many-${n}/track`);
      await server.ask('DELETE', `/queues/many-${n}`);
    }
  }],
  ['a restart keeps how it went and tells which operations it cut off', async () => {
    allowed = (words) => /ERR_|Failed to load/.test(words);
    await until('there are samples', async () => (await server.get('/trend')).samples.length > 1, 40);
    const before = (await server.get('/trend')).samples.length;
    await server.fail('cut', 'cut-off', 'cut-off');
    await server.post('/operations', { action: 'cancel', filter: { group: 'cut-off' }, delay: 600 });
    await server.stop();
    await server.run(server.redis, server.http);
    check((await server.get('/trend')).samples.length >= before, 'the samples are gone');
    await go('failures');
    await says('the server was stopped before it began: nothing was changed');
    equal((await server.job('cut-off')).state, 'failed');
    await server.ask('DELETE', '/jobs/cut-off');
    allowed = () => false;
  }],
  ['names that are dots, or no text, can be reached and acted on', async () => {
    const odd = Buffer.from([0x6f, 0xff, 0x80]);
    const names = [['.', Buffer.from('.')], ['..', Buffer.from('..')], ['o\u{10feff}\u{10fe80}', odd]];
    for (const [shown, raw] of names) {
      await server.redisSay('HAUL.PUT', raw, raw, '{}', 'JID', raw, 'TAG', raw, 'THROTTLE', raw);
      await server.redisSay('HAUL.THROTTLE', 'SET', raw, '1');
      await server.redisSay('HAUL.RECUR', raw, 'k', '{}', 'INTERVAL', '1000', 'OFFSET', '1000', 'JID', raw);
      await server.redisSay('HAUL.CONFIG', 'SET', raw, 'x');
      const q = encodeURIComponent(shown);
      await go(`queue?name=${q}`);
      await says('waiting 1');
      await press('Pause');
      await says('Resume');
      check((await server.redisSay('HAUL.QUEUES', raw)).includes('"paused":true'), `${shown} is paused`);
      await press('Resume');
      await until('it goes on', async () => (await server.redisSay('HAUL.QUEUES', raw)).includes('"paused":false'));
      await page.locator('tr[data-row] a').first().click();
      await until('the job', async () => page.url().includes('/ui/job?jid='));
      await says('What happened');
      await press('Tag…');
      await answer({ tags: 'more' }, 'Add');
      await until('it is tagged', async () => (await server.redisSay('HAUL.GET', raw)).includes('"more"'));
      await press('Track');
      await says('Untrack');
      await go('tracked');
      await until('it is listed', async () => (await page.locator('tr[data-row]', { hasText: shown === '.' || shown === '..' ? shown : 'o\\xff\\x80' }).count()) >= 1);
      await go(`search?tag=${q}`);
      equal(await page.locator('tr[data-row]').count(), 1, `${shown}: found by its tag`);
      await go(`recurring?jid=${q}`);
      await press('Run now');
      await says('made');
      await press('Pause');
      await until('it is paused', async () => (await server.redisSay('HAUL.GETRECUR', raw)).includes('"paused":true'));
      await go(`throttles?id=${q}`);
      await press('Delete…');
      await answer({}, 'Delete');
      await until('the throttle is gone', async () => (await server.redisSay('HAUL.THROTTLE', 'GET', raw)).includes('"ttl":-2'));
      await server.redisSay('HAUL.POP', raw, 'COUNT', '5', 'QUEUES', raw);
      await go(`worker?name=${q}`);
      await says('Running 2');
      await server.redisSay('HAUL.FAIL', raw, raw, raw, Buffer.from([0x6d, 0xfe]));
      await go(`failures?group=${q}`);
      equal(await page.getByRole('region', { name: 'Failed jobs' }).locator('tr[data-row]').count(), 1, `${shown}: in its group`);
      await page.locator('tr[data-row] a').first().click();
      await says('Failure');
      await press('Cancel…');
      await answer({}, 'Cancel the job');
      await until('it is cancelled', async () => (await server.redisSay('HAUL.GET', raw)).startsWith('$-1'));
      await server.redisSay('HAUL.CANCEL', Buffer.concat([raw, Buffer.from('-1')]));
      await server.redisSay('HAUL.UNRECUR', raw);
      await go('config');
      await until('the option is there', async () => (await page.getByRole('button', { name: `Default of ${shown.startsWith('o') ? 'o\\xff\\x80' : shown}`, exact: true }).count()) === 1);
      await press(`Default of ${shown.startsWith('o') ? 'o\\xff\\x80' : shown}`);
      await until('the option is unset', async () => (await server.redisSay('HAUL.CONFIG', 'GET', raw)).startsWith('$-1'));
    }
  }],
  ['everything works from the keyboard', async () => {
    await go('');
    await page.keyboard.press('g');
    await page.keyboard.press('f');
    await until('failures', () => page.url().endsWith('/ui/failures'));
    await page.keyboard.press('g');
    await page.keyboard.press('o');
    await until('overview', () => page.url().endsWith('/ui/'));
    await says('mail');
    await page.keyboard.press('j');
    await page.keyboard.press('j');
    await page.keyboard.press('k');
    await page.keyboard.press('Enter');
    await until('a queue', () => page.url().includes('/ui/queue?name='));
    await page.keyboard.press('/');
    equal(await page.evaluate(() => document.activeElement.id), 'q');
    await page.keyboard.type('state:running');
    await page.keyboard.press('Enter');
    await says('host-1');
    await page.keyboard.press('?');
    await until('the keys are shown', async () => (await page.locator('dialog[open]').innerText()).includes('next, previous row'));
    await page.keyboard.press('Escape');
    await until('and gone', async () => (await page.locator('dialog').count()) === 0);
    await page.keyboard.press('Tab');
    check(await page.evaluate(() => document.activeElement !== document.body), 'Tab reaches something');
  }],
  ['nodes that share a store are shown with their shards', async () => {
    const one = await Server.start({ store: true });
    const two = await Server.start({ of: one });
    const tab = await context.newPage();
    try {
      const cluster = await until('both nodes have shards', async () => {
        const found = await two.get('/cluster');
        const owners = new Set(found.shards.map((shard) => shard.node));
        return found.shards.every((shard) => shard.epoch > 0) && owners.size === 2 ? found : null;
      });
      await one.put({ queue: 'q', klass: 'k', data: {} });
      await go('system', tab, two);
      for (const node of cluster.nodes) await says(node.address, tab);
      await says('Writes', tab);
      const rows = await tab.getByRole('table', { name: 'Shards' }).locator('tbody tr').count();
      equal(rows, 16);
      const cells = await tab.getByRole('table', { name: 'Shards' }).locator('tbody tr').first().locator('td').allInnerTexts();
      equal(cells.slice(0, 3), ['0', cluster.shards[0].node, String(cluster.shards[0].epoch)]);
      check((await text(tab)).includes('rounds in flight') && (await text(tab)).includes('last commit'), 'lag and commit latency');
      await accessible(tab, 'system of a node');
      await shot('nodes', tab);
    } finally {
      await tab.close();
      await two.end();
      await one.end();
    }
  }],
  ['fetch and EventSource of a page of this server reach the API', async () => {
    await go('system');
    const found = await page.evaluate(async () => {
      const heard = new Promise((resolve) => {
        const source = new EventSource('/api/v1/events?queue=ev');
        source.onmessage = (event) => { source.close(); resolve(JSON.parse(event.data).jid); };
        source.onopen = () => fetch('/api/v1/jobs', { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"queue":"ev","klass":"k","jid":"ev-1"}' });
      });
      return [await heard, (await (await fetch('/api/v1/jobs/ev-1')).json()).klass];
    });
    equal(found, ['ev-1', 'k']);
  }],
  ['hostile strings in every field are text', async () => {
    for (const [kind, evil] of Object.entries(hostile)) {
      await server.put({ queue: evil, klass: evil, jid: `evil ${evil}`, data: { [evil]: evil }, tags: [evil, `two ${evil}`], throttles: [evil] });
      await server.put({ queue: `q ${evil}`, klass: evil, jid: `bad ${evil}`, data: evil, tags: [evil] });
      await server.pop(`q ${evil}`, `worker ${evil}`);
      await server.post(`/jobs/${encodeURIComponent(`bad ${evil}`)}/fail`, { worker: `worker ${evil}`, group: `group ${evil}`, message: evil });
      await server.post('/recurring', { queue: evil, klass: evil, jid: `recur ${evil}`, interval: 1e6, data: evil });
      await server.ask('PUT', `/throttles/${encodeURIComponent(`th ${evil}`)}`, { maximum: 1 });
      await server.ask('PUT', `/config/${encodeURIComponent(`option ${evil}`)}`, { value: evil });
      await server.ask('PUT', `/jobs/${encodeURIComponent(`evil ${evil}`)}/track`);
      await server.post(`/jobs/${encodeURIComponent(`evil ${evil}`)}/log`, { message: evil });
      const q = encodeURIComponent;
      for (const path of [`queue?name=${q(evil)}`, `job?jid=${q(`evil ${evil}`)}`, `job?jid=${q(`bad ${evil}`)}`, `failures?group=${q(`group ${evil}`)}`, `search?tag=${q(evil)}`, `worker?name=${q(`worker ${evil}`)}`, `throttles?id=${q(`th ${evil}`)}`, `recurring?jid=${q(`recur ${evil}`)}`]) {
        await go(path);
        check(await page.locator('main .error').count() === 0, `${kind}: ${path}: ${await text()}`);
      }
    }
    for (const path of ['', 'failures', 'search', 'workers', 'tracked', 'tags', 'recurring', 'throttles', 'config', 'audit']) {
      await go(path);
      const found = await page.evaluate(() => [window.hit, document.querySelectorAll('main img, main script, main iframe').length, /[\u0000-\u0008\u000b-\u001f\u202a-\u202e\u2066-\u2069]/.test(document.querySelector('main').textContent)]);
      equal(found, [null, 0, false].map((value, index) => index === 0 ? found[0] ?? null : value), path);
      check(await page.evaluate(() => window.hit === undefined), `${path}: something was run`);
    }
    await go('');
    await shot('hostile');
  }],
  ['a megabyte of data and bytes that are no text', async () => {
    await server.put({ queue: 'large', klass: 'k', jid: 'large', data: { blob: 'x'.repeat(1_000_000), after: 'the end' } });
    await go('job?jid=large');
    await says('more characters');
    await press('Show all');
    await until('all of it', async () => (await page.locator('pre').first().evaluate((pre) => pre.textContent.length)) > 1_000_000);
    const odd = Buffer.from([0x71, 0xff, 0xfe, 0x80]);
    await server.redisSay('HAUL.PUT', odd, Buffer.from([0x6b, 0xc3, 0x28]), Buffer.from('{"a":"\xff"}', 'latin1'), 'JID', Buffer.from([0x6a, 0xff]), 'TAG', odd);
    await go('');
    await says('q\\xff\\xfe\\x80');
    await go(`search?text=${encodeURIComponent('k\u{10fec3}(')}`);
    await says('k\\xc3(');
    equal(await page.locator('tr[data-row]').count(), 1);
    await page.locator('tr[data-row] a').first().click();
    await says('"a": "\\xff"');
    equal(await page.locator('h1').innerText(), 'Job j\\xff');
    await accessible(page, 'a job of odd bytes');
  }],
  ['login, roles and the cookie', async () => {
    const other = await context.newPage();
    watch(other, () => guarded.url, faults, { allow: (words) => /401|403|404/.test(words) });
    await guarded.put({ queue: 'mail', klass: 'k', jid: 'default-job', data: {} });
    await fetch(`${guarded.url}/api/v1/jobs`, { method: 'POST', headers: { authorization: `Bearer ${guarded.tokens.op}`, 'content-type': 'application/json' }, body: '{"queue":"acme","klass":"k","jid":"acme-job"}' });
    const login = async (token) => {
      await other.goto(`${guarded.url}/ui/job?jid=acme-job`);
      await other.locator('#token').fill(token);
      await other.locator('main').getByRole('button', { name: 'Log in' }).click();
    };
    await login('haul_wrong');
    await says('there is no such token', other);
    await accessible(other, 'the login');
    await shot('login', other);
    await login(guarded.tokens.looker);
    await says('acme-job', other);
    equal(await other.locator('main .bar button').count(), 0, 'what a looker is offered');
    equal(await other.evaluate(() => document.cookie), '', 'what scripts see of the cookie');
    const cookie = (await context.cookies(guarded.url)).find((one) => one.name === 'haul_session');
    equal([cookie.httpOnly, cookie.sameSite, cookie.path], [true, 'Strict', '/']);
    check(!cookie.value.includes('haul_'), 'the cookie is not the token');
    check(!(await other.locator('#nav').innerText()).includes('Audit'), 'the audit log is not offered');
    await other.goto(`${guarded.url}/ui/queue?name=acme`);
    await says('waiting 1', other);
    equal(await other.getByRole('button', { name: 'Pause' }).count(), 0);
    const tries = await other.evaluate(async () => {
      const status = async (path, method, headers = {}) => (await fetch(path, { method, headers })).status;
      return [await status('/api/v1/jobs/acme-job', 'DELETE'), await status('/api/v1/jobs/acme-job', 'DELETE', { 'x-haul-page': '1' }), await status('/api/v1/jobs/default-job', 'GET'), await status('/api/v1/me', 'GET', { 'x-haul-tenant': 'other' })];
    });
    equal(tries, [403, 403, 404, 403], 'no header, no right, another tenant');
    await other.getByRole('button', { name: 'Log out' }).click();
    await says('This server asks for a token', other);
    equal(await other.evaluate(async () => (await fetch('/api/v1/me')).status), 401);
    await login(guarded.tokens.op);
    await says('Cancel…', other);
    await other.locator('main').getByRole('button', { name: 'Cancel…' }).click();
    await other.locator('dialog[open]').getByRole('button', { name: 'Cancel the job' }).click();
    await until('it is cancelled', async () => (await fetch(`${guarded.url}/api/v1/jobs/acme-job`, { headers: { authorization: `Bearer ${guarded.tokens.op}` } })).status === 404);
    await other.getByRole('button', { name: 'Log out' }).click();
    await login(guarded.tokens.admin);
    await says('there is no job acme-job', other);
    await other.goto(`${guarded.url}/ui/?tenant=acme`);
    await says('acme', other);
    check((await other.locator('#who').innerText()).includes('tenant acme'), 'the tenant is told');
    await other.goto(`${guarded.url}/ui/audit`);
    await says('cancel', other);
    await other.close();
  }],
  ['dark, narrow and without motion', async () => {
    await page.emulateMedia({ colorScheme: 'dark', reducedMotion: 'reduce' });
    await go('');
    await says('mail');
    await accessible(page, 'the dark overview');
    await shot('overview-dark');
    await go('job?jid=after');
    await accessible(page, 'a dark job');
    await shot('job-dark');
    await page.setViewportSize({ width: 400, height: 800 });
    await go('');
    check(await page.evaluate(() => document.documentElement.scrollWidth <= 400), 'it is wider than a phone');
    await shot('overview-narrow');
    await page.setViewportSize({ width: 1280, height: 800 });
    await page.emulateMedia({ colorScheme: 'light' });
  }],
  ['screenshots of a server at work', async () => {
    await page.emulateMedia({ colorScheme: 'light' });
    await server.ask('PATCH', '/queues/mail', { paused: false });
    await go('');
    await says('mail');
    await shot('overview');
  }],
  ['no error on the console, nothing asked of anybody else', async () => equal(faults, [])],
];

let failed = 1;
try {
  await seed();
  failed = await run(tests, process.argv[2]);
} finally {
  await close().catch(() => {});
  await server.end();
  await guarded.end();
}
console.log(failed ? `${failed} failed` : `all passed; screenshots are in ${process.env.HAUL_SHOTS}`);
process.exit(failed ? 1 : 0);
