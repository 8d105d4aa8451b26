package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"

	"perdure.dev/perdure/internal/store/sqlite/db"
)

// batchMax is how many calls one transaction takes. It bounds how long the first of them waits.
const batchMax = 512

// job is one writing call. Its body may run more than once (when a transaction has to be given up), so it sets its results
// anew each time. A body that returns a refusal has written nothing.
type job struct {
	body  func(ctx context.Context, q *db.Queries) error
	after func() // runs once the transaction is on disk, before the caller goes on; may be nil
	state atomic.Int32
	done  chan struct{}
	err   error
}

// The states of a job: a caller that gives up can withdraw it only while it waits.
const (
	waiting int32 = iota
	taken
	withdrawn
)

// refusal is an error of a body that has written nothing, so that the transaction goes on without it.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func refuse(err error) error {
	if err == nil {
		return nil
	}
	return refusal{err}
}

// writer is the goroutine that owns the only connection that writes.
type writer struct {
	mu      sync.RWMutex // guards stopped; held for reading while sending on jobs, so that it is not closed under a sender
	stopped bool
	jobs    chan *job
	ended   chan struct{}

	wdb                     *sql.DB
	conn                    *sql.Conn
	q                       *db.Queries
	begin, commit, rollback *sql.Stmt
}

func startWriter(ctx context.Context, wdb *sql.DB) (_ *writer, err error) {
	w := &writer{jobs: make(chan *job, batchMax), ended: make(chan struct{}), wdb: wdb}
	if w.conn, err = wdb.Conn(ctx); err != nil {
		return nil, err
	}
	if w.q, err = db.Prepare(ctx, w.conn); err != nil {
		return nil, errors.Join(err, w.conn.Close())
	}
	for stmt, text := range map[**sql.Stmt]string{&w.begin: "BEGIN IMMEDIATE", &w.commit: "COMMIT", &w.rollback: "ROLLBACK"} {
		if *stmt, err = w.conn.PrepareContext(ctx, text); err != nil {
			return nil, errors.Join(err, w.conn.Close())
		}
	}
	// What was accepted is committed even when whoever opened the store has gone.
	go w.loop(context.WithoutCancel(ctx))
	return w, nil
}

// do runs body in a transaction and returns when that is on disk. If ctx ends before the job's turn, nothing is written.
func (w *writer) do(ctx context.Context, body func(context.Context, *db.Queries) error, after func()) error {
	j := &job{body: body, after: after, done: make(chan struct{})}
	if err := w.submit(ctx, j); err != nil {
		return err
	}
	select {
	case <-j.done:
	case <-ctx.Done():
		if j.state.CompareAndSwap(waiting, withdrawn) {
			return context.Cause(ctx)
		}
		<-j.done // it is being written: the caller must learn the outcome
	}
	var r refusal
	if errors.As(j.err, &r) {
		return translate(r.error)
	}
	return translate(j.err)
}

func (w *writer) submit(ctx context.Context, j *job) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.stopped {
		return closed()
	}
	select {
	case w.jobs <- j:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// loop commits jobs in batches: those that came while the last batch was being synced.
func (w *writer) loop(ctx context.Context) {
	defer close(w.ended)
	batch := make([]*job, 0, batchMax)
	for j := range w.jobs {
		batch = w.take(batch[:0], j)
	fill:
		for len(batch) < batchMax {
			select {
			case j, ok := <-w.jobs:
				if !ok {
					break fill
				}
				batch = w.take(batch, j)
			default:
				break fill
			}
		}
		w.run(ctx, batch)
		clear(batch)
	}
}

func (w *writer) take(batch []*job, j *job) []*job {
	if j.state.CompareAndSwap(waiting, taken) {
		return append(batch, j)
	}
	return batch // withdrawn: its caller has gone
}

// run commits a batch. When the transaction fails, each job gets one of its own, so that only the guilty ones fail.
func (w *writer) run(ctx context.Context, batch []*job) {
	if err := w.transact(ctx, batch); err != nil {
		for _, j := range batch {
			if len(batch) > 1 {
				err = w.transact(ctx, []*job{j})
			}
			if err != nil {
				j.err = err
			}
		}
	}
	for _, j := range batch {
		if j.err == nil && j.after != nil {
			j.after()
		}
		close(j.done)
	}
}

// transact runs the jobs in one transaction. On error nothing of them is stored. Refused jobs carry their error and have
// written nothing.
func (w *writer) transact(ctx context.Context, batch []*job) error {
	if len(batch) == 0 {
		return nil
	}
	if _, err := w.begin.ExecContext(ctx); err != nil {
		return err
	}
	err := w.bodies(ctx, batch)
	if err == nil {
		_, err = w.commit.ExecContext(ctx)
	}
	if err != nil {
		// SQLite may have rolled back by itself, in which case this fails and does not matter.
		_, _ = w.rollback.ExecContext(ctx)
	}
	return err
}

func (w *writer) bodies(ctx context.Context, batch []*job) error {
	for _, j := range batch {
		j.err = nil
		err := j.body(ctx, w.q)
		if r := (refusal{}); errors.As(err, &r) {
			j.err = err
		} else if err != nil {
			return err
		}
	}
	return nil
}

// stop takes no more jobs and waits for those accepted.
func (w *writer) stop() {
	w.mu.Lock()
	if !w.stopped {
		w.stopped = true
		close(w.jobs)
	}
	w.mu.Unlock()
	<-w.ended
}

func (w *writer) close() error {
	return errors.Join(w.q.Close(), w.begin.Close(), w.commit.Close(), w.rollback.Close(), w.conn.Close(), w.wdb.Close())
}
