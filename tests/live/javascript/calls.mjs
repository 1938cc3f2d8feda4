// Every call of E2B's SDK that a server of ours answers; prints [name, what was seen] for each.
import { Sandbox } from '@e2b/code-interpreter'

const show = (name, value) => console.log(JSON.stringify([name, value]))
const failure = async (promise) => promise.then(() => null, (error) => error)

const box = await Sandbox.create({ timeoutMs: 100_000, metadata: { of: 'tests' }, envs: { COLOUR: 'red' } })
await box.setTimeout(110_000)
const { metadata, state } = await box.getInfo()
show('info', { metadata, state })
show('connected', (await (await Sandbox.connect(box.sandboxId)).commands.run('echo same')).stdout)

let live = ''
const { stdout, stderr, exitCode } = await box.commands.run('echo $COLOUR $SHAPE; pwd; echo oops >&2', {
  envs: { SHAPE: 'round' },
  cwd: '/tmp',
  onStdout: (text) => { live += text },
})
show('command', { stdout, stderr, exitCode, live })
const failed = await failure(box.commands.run('exit 3'))
show('failed command', { name: failed.constructor.name, exitCode: failed.exitCode })
show('slow command', (await failure(box.commands.run('sleep 60', { timeoutMs: 1000 }))).constructor.name)
const loop = await box.commands.run('while read line; do echo got $line; done; echo end', { background: true, stdin: true })
const second = await box.commands.connect(loop.pid)
await box.commands.sendStdin(loop.pid, 'one\n')
await box.commands.closeStdin(loop.pid)
show('input', [(await loop.wait()).stdout, (await second.wait()).stdout])
const sleep = await box.commands.run('sleep 100', { background: true })
sleep.wait().catch(() => {})
const listed = (await box.commands.list()).find((each) => each.pid === sleep.pid)
show('process', { cmd: listed.cmd, killed: [await box.commands.kill(sleep.pid), await box.commands.kill(sleep.pid)] })
let typed = ''
const terminal = await box.pty.create({ cols: 80, rows: 24, onData: (data) => { typed += new TextDecoder().decode(data) } })
await box.pty.resize(terminal.pid, { cols: 100, rows: 30 })
await box.pty.sendInput(terminal.pid, new TextEncoder().encode('stty size; exit\n'))
await terminal.wait()
show('terminal', typed)

const written = await box.files.write('notes/a.txt', 'text é')
const streamed = []
for await (const chunk of await box.files.read('notes/a.txt', { format: 'stream' })) streamed.push(...chunk)
show('file', {
  text: await box.files.read('notes/a.txt'),
  bytes: (await box.files.read('notes/a.txt', { format: 'bytes' })).length,
  blob: (await box.files.read('notes/a.txt', { format: 'blob' })).size,
  stream: streamed.length,
  path: written.path,
})
show('several', (await box.files.write([{ path: 'many/1', data: '1' }, { path: 'many/2', data: '2' }])).map((each) => each.path))
const { size, permissions, owner, type } = await box.files.getInfo('notes/a.txt')
show('entry', { size, permissions, owner, type })
const signedDownload = await (await fetch(await box.downloadUrl('notes/a.txt', { useSignatureExpiration: 60 }))).text()
const made = [await box.files.makeDir('folder'), await box.files.makeDir('folder')]
const names = (await box.files.list('notes')).map((each) => each.path)
await box.files.rename('notes/a.txt', 'folder/b.txt')
const moved = await box.files.exists('folder/b.txt')
await box.files.remove('folder')
show('folder', { made, listed: names, moved, left: await box.files.exists('folder') })
show('missing file', (await failure(box.files.read('not/there'))).constructor.name)
const events = []
const watch = await box.files.watchDir('.', (event) => events.push([event.type, event.name]))
await box.files.write('seen.txt', '1')
for (let turn = 0; turn < 400 && !events.some(([kind, name]) => kind === 'write' && name === 'seen.txt'); turn++)
  await box.files.exists('seen.txt')
await watch.stop()
show('watched', events)
const form = new FormData()
form.append('file', new Blob(['sent']), 'any')
await fetch(await box.uploadUrl('uploaded.txt'), { method: 'POST', body: form })
const forged = (await box.downloadUrl('uploaded.txt')).replace('uploaded', 'other')
show('signed', {
  downloaded: signedDownload,
  uploaded: await box.files.read('uploaded.txt'),
  forged: (await fetch(forged)).status,
})

const printed = []
const execution = await box.runCode("print('hello'); x = 20; x + 1", { onStdout: (message) => printed.push(message.line) })
const { error } = await box.runCode('1 / 0')
show('code', { text: execution.text, printed: printed.join(''), error: [error.name, error.value] })
const context = await box.createCodeContext({ cwd: '/tmp' })
const cwd = (await box.runCode('import os; y = 1; os.getcwd()', { context })).text
const count = (await box.listCodeContexts()).length
await box.restartCodeContext(context)
const kept = (await box.runCode("'y' in globals()", { context })).text
await box.removeCodeContext(context)
show('contexts', { cwd, state: kept, listed: count, bash: (await box.runCode('echo $COLOUR', { language: 'bash' })).logs.stdout.join('') })

show('metrics', (await box.getMetrics())[0])
const other = await Sandbox.create({ timeoutMs: 60_000, metadata: { of: 'tests' } })
const pages = Sandbox.list({ query: { metadata: { of: 'tests' } }, limit: 1 })
let count_of_pages = 0
while (pages.hasNext) count_of_pages += (await pages.nextItems()).length
show('pages', count_of_pages)
await other.kill()
show('pause', (await failure(box.pause())).message)
show('root', (await failure(box.commands.run('id', { user: 'root' }))).message)
show('foreign', (await failure(Sandbox.connect(box.sandboxId, { apiKey: process.env.FOREIGN_KEY }))).constructor.name)
show('bad key', (await failure(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }))).constructor.name)
show('killed', [await box.kill(), await box.kill(), await box.isRunning()])
