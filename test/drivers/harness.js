// HOST PORT USER - stands behind the code of doc/drivers.md.  A line "ACTION NAME" is carried
// out, and answered by one line.
const [host, port, user] = process.argv.slice(2);
const config = { host, port: Number(port), user, database: 'postgres' };
// a pool of one connection, so that it is the same one again
const pool = new Pool({ ...config, max: 1 });
let attempts;

async function work(client) {
  attempts++;
  await client.query('INSERT INTO done VALUES (1)');
  await client.query('SELECT pg_advisory_xact_lock_shared(1)');
  await client.query('INSERT INTO done VALUES (2)');
  return 'done';
}

async function holds(client, name) {
  return (await client.query('SELECT zk_token($1) IS NOT NULL AS holds', [name])).rows[0].holds;
}

const actions = {
  locked: (name) => locked(pool, name, work),
  session: (name) => lockedSession(config, name, work),
  async autocommit(name) {
    const client = new Client(config);
    await client.connect();
    try {
      await client.query('SELECT zk_lock($1)', [name]);
      return (await holds(client, name)) ? 'True' : 'False';
    } finally {
      await client.end();
    }
  },
  async begun(name) {
    const client = new Client(config);
    await client.connect();
    try {
      await client.query('BEGIN');
      await client.query('SELECT zk_lock($1)', [name]);
      if (!(await holds(client, name))) return 'not held';
      await client.query('CALL zk_lock_session($1)', [name]);
      return 'done';
    } finally {
      await client.end();
    }
  },
};

(async () => {
  for await (const line of require('readline').createInterface({ input: process.stdin })) {
    const [action, name] = line.split(' ');
    attempts = 0;
    let answer;
    try {
      answer = await actions[action](name);
    } catch (error) {
      answer = error.code || String(error);
    }
    console.log(`${answer} ${attempts}`);
  }
  await pool.end();
})();
