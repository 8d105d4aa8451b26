package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/event/eventtest"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/store/sqlite"
)

const (
	groupLog  = "Event log"
	events50  = "durable events, 50 sessions, 400 callers"
	groupIdle = "Idle sessions"
	idleRSS   = "10,000 idle sessions: the daemon's RSS"
)

// log measures appends that are on stable storage when they return.
func (x *bench) log(b *testing.B) {
	dir := filepath.Join(x.dir, "log")
	db := openStore(b, dir)
	ids := make([]id.Session, 50)
	for i := range ids {
		ids[i] = eventtest.NewSession(b, db, fmt.Sprint("bench ", i))
	}
	for range x.times(5, 2) {
		x.add(groupLog, events50, perdure, "events/s", appends(b, db, ids, 400, x.times(20000, 5000)))
		x.add(groupLog, "durable events, 1 session, 1 caller", perdure, "events/s", appends(b, db, ids[:1], 1, x.times(300, 100)))
		x.add(groupLog, "the disk: 4 KiB written and synced, one after the other", "disk", "writes/s", syncs(b, filepath.Join(dir, "probe"), x.times(300, 100)))
	}
	must(b, db.Close())
}

func openStore(b *testing.B, dir string) *sqlite.Store {
	b.Helper()
	db, err := sqlite.Open(b.Context(), sqlite.Options{Dir: dir})
	must(b, err)
	return db
}

const eventText = "a message of some two hundred bytes, which is what most events of a session come to when nobody reads a file, so that " +
	"a figure about many of them tells something about those that people will really have in their logs"

// appends returns events per second.
func appends(b *testing.B, log event.Log, ids []id.Session, callers, count int) float64 {
	b.Helper()
	var wg sync.WaitGroup
	began := time.Now()
	for w := range callers {
		wg.Go(func() {
			for i := w; i < count; i += callers {
				a := event.Append{Session: ids[w%len(ids)], Expected: event.AnySeq, Events: []event.Draft{eventtest.User(eventText)}}
				if _, err := log.Append(b.Context(), a); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(count) / time.Since(began).Seconds()
}

// syncs returns how many small appends per second the disk takes, each synced: the most that a log without group commit could do.
func syncs(b *testing.B, name string, count int) float64 {
	b.Helper()
	f, err := os.Create(name)
	must(b, err)
	defer f.Close()
	page := make([]byte, 4096)
	began := time.Now()
	for range count {
		_, err := f.Write(page)
		must(b, err)
		must(b, unix.Fdatasync(int(f.Fd())))
	}
	return float64(count) / time.Since(began).Seconds()
}

// answered is a turn that asked for something and got it: the session has nothing to do.
func answered() []event.Draft {
	return []event.Draft{
		eventtest.User(eventText),
		{Type: event.TurnStarted, Data: event.TurnStartedData{Messages: []event.Seq{2}}},
		{Type: event.MessageAgent, Data: event.MessageAgentData{Text: eventText}},
		{Type: event.TurnFinished, Data: event.TurnFinishedData{Reason: "answered"}},
	}
}

// idle measures what sessions cost that nobody uses.
func (x *bench) idle(b *testing.B) {
	dir := filepath.Join(x.dir, "idle")
	db := openStore(b, dir)
	count := x.times(10000, 1000)
	var wg sync.WaitGroup
	for w := range 200 {
		wg.Go(func() {
			for i := w; i < count; i += 200 {
				sid := eventtest.NewSession(b, db, fmt.Sprint("idle-", i))
				eventtest.Append(b, db, event.Append{Session: sid, Expected: event.AnySeq, Events: answered()})
			}
		})
	}
	wg.Wait()
	must(b, db.Close())
	name := fmt.Sprintf("%d idle sessions: ", count)
	rssName := idleRSS
	if x.quick {
		rssName = name + "the daemon's RSS"
	}
	var d *daemon
	x.time(groupIdle, name+"start of the daemon", perdure, func() { d = x.serve(b, dir) })
	page := api.Page{Limit: 100}
	x.time(groupIdle, name+"the first page of the list", perdure, func() { _, err := d.Sessions(b.Context(), page); must(b, err) })
	x.add(groupIdle, rssName, perdure, "MB", rss(b, d.cmd.Process.Pid))
	_, err := d.Session(b.Context(), "idle-7")
	must(b, err)
	for seen := 0; ; { // all of them are looked at once
		list, err := d.Sessions(b.Context(), page)
		must(b, err)
		seen += len(list.Data)
		if !list.HasMore || len(list.Data) == 0 {
			break
		}
		page.After = list.Data[len(list.Data)-1].ID
	}
	x.add(groupIdle, name+"RSS after listing all", perdure, "MB", rss(b, d.cmd.Process.Pid))
}
