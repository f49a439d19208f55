// BullMQ, whose queues live on Lua scripts, streams and blocking commands, against the server whose
// socket is the argument. `tests/it/bullmq.rs` runs it.

const { FlowProducer, Queue, QueueEvents, Worker } = require('bullmq');

const connection = { path: process.argv[2], maxRetriesPerRequest: null };
const LIMIT_MS = 60000;

function expect(what, found, wanted) {
    if (JSON.stringify(found) !== JSON.stringify(wanted)) {
        throw new Error(`${what}: ${JSON.stringify(found)} and not ${JSON.stringify(wanted)}`);
    }
}

async function main() {
    const queue = new Queue('jobs', { connection });
    const events = new QueueEvents('jobs', { connection });
    const flow = new FlowProducer({ connection });
    await events.waitUntilReady();
    const done = [];
    const work = async (job) => {
        if (job.name === 'fails' && job.attemptsMade < 1) throw new Error('the first time');
        await job.updateProgress(50);
        done.push(job.name);
        return job.data.n * 2;
    };
    const worker = new Worker('jobs', work, { connection, concurrency: 4 });
    const result = (job) => job.waitUntilFinished(events, LIMIT_MS);

    const numbers = [...Array(100).keys()];
    const jobs = await queue.addBulk(numbers.map((n) => ({ name: 'plain', data: { n } })));
    const doubled = numbers.map((n) => n * 2);
    expect('plain jobs', await Promise.all(jobs.map(result)), doubled);

    const began = Date.now();
    const delayed = await queue.add('delayed', { n: 1 }, { delay: 500 });
    expect('a delayed job', await result(delayed), 2);
    expect('its delay', Date.now() - began >= 500, true);

    const urgent = await queue.add('urgent', { n: 2 }, { priority: 1 });
    expect('a job with a priority', await result(urgent), 4);

    const backoff = { type: 'fixed', delay: 100 };
    const fails = await queue.add('fails', { n: 3 }, { attempts: 3, backoff });
    expect('a job that fails once', await result(fails), 6);

    const every = { every: 200, limit: 3 };
    await queue.upsertJobScheduler('often', every, { name: 'repeated', data: { n: 1 } });
    const repeated = () => done.filter((name) => name === 'repeated').length;
    while (repeated() < 3) {
        if (Date.now() - began > LIMIT_MS) throw new Error(`${repeated()} of 3 repeated jobs`);
        await new Promise((resolve) => setTimeout(resolve, 50));
    }

    const children = [{ name: 'child', queueName: 'jobs', data: { n: 4 } }];
    const tree = await flow.add({ name: 'parent', queueName: 'jobs', data: { n: 5 }, children });
    expect('a job with a child', await result(tree.job), 10);

    // BullMQ adds others to what was asked for.
    const left = await queue.getJobCounts('active', 'failed', 'waiting', 'delayed');
    const counts = [left.active, left.failed, left.waiting, left.delayed];
    expect('what is left', counts, [0, 0, 0, 0]);
    console.log(`${done.length} jobs`);
    process.exit(0);
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
