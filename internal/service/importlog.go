package service

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/portable"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/store"
)

// stagedLog is a log of an archive, in a file, whose chain has been verified.
type stagedLog struct {
	session id.Session
	file    string
	offsets []int64 // of each event's line
	head    event.Head
}

// stagedLogs are all of an archive's, ancestors first. They are a session.Reader.
type stagedLogs []*stagedLog

// longestLine is the most bytes that an event takes as JSON.
const longestLine = event.MaxDataBytes*2 + 64<<10

// stageLog writes a log to a file, and verifies that it is the chain of events that the header names.
func stageLog(ctx context.Context, file string, want portable.Log, r io.Reader) (_ *stagedLog, err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, diskError(err, "store a log of the archive")
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	l := &stagedLog{session: want.SessionID, file: file}
	out := bufio.NewWriterSize(f, 1<<20)
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 64<<10), longestLine)
	var at int64
	for in.Scan() {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		e, err := l.next(in.Bytes())
		if err != nil {
			return nil, err
		}
		l.offsets = append(l.offsets, at)
		l.head = event.Head{Seq: e.Seq, Hash: e.Hash}
		n, err := fmt.Fprintf(out, "%s\n", in.Bytes())
		if err != nil {
			return nil, diskError(err, "store a log of the archive")
		}
		at += int64(n)
	}
	if errors.Is(in.Err(), bufio.ErrTooLong) {
		return nil, badLog("the log of %s has a line of more than %d bytes", l.session, longestLine)
	}
	if in.Err() != nil {
		return nil, in.Err()
	}
	if len(l.offsets) != want.Events || l.head.Hash != want.HeadHash {
		return nil, badLog("the log of %s is not the one that the archive's header names", l.session)
	}
	return l, diskError(out.Flush(), "store a log of the archive")
}

func badLog(format string, args ...any) error {
	return errdefs.New(errdefs.Invalid, "archive_damaged", format, args...).WithHint("make it anew: perdure export S -o FILE")
}

// next reads the line after those so far.
func (l *stagedLog) next(line []byte) (event.Event, error) {
	var e event.Event
	if err := json.Unmarshal(line, &e); err != nil {
		return e, badLog("the log of %s has a line %d that is no event: %v", l.session, len(l.offsets)+1, err)
	}
	if e.SessionID != l.session || e.Seq != l.head.Seq+1 || !id.Valid("evt", string(e.ID)) || len(e.Data) > event.MaxDataBytes {
		return e, badLog("the log of %s has an event %d that does not belong there", l.session, e.Seq)
	}
	hash, err := event.Hash(l.head.Hash, e)
	if err != nil || hash != e.Hash {
		return e, badLog("event %d of the log of %s does not have the hash that it must have", e.Seq, l.session)
	}
	if _, err := event.Decode(e); err != nil {
		return e, errdefs.Wrap(err, errdefs.Invalid, "archive_newer", "event %d of the log of %s cannot be read", e.Seq, l.session)
	}
	return e, nil
}

// events yields a log, from the event after a position on.
func (l *stagedLog) events(after event.Seq) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		if int(after) >= len(l.offsets) {
			return
		}
		f, err := os.Open(l.file)
		if err != nil {
			yield(event.Event{}, err)
			return
		}
		defer f.Close()
		if _, err := f.Seek(l.offsets[after], io.SeekStart); err != nil {
			yield(event.Event{}, err)
			return
		}
		dec := json.NewDecoder(bufio.NewReaderSize(f, 256<<10))
		for n := int(after); n < len(l.offsets); n++ {
			var e event.Event
			err := dec.Decode(&e)
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Read implements session.Reader.
func (all stagedLogs) Read(_ context.Context, sid session.ID, after event.Seq, limit int) ([]event.Event, error) {
	for _, l := range all {
		if l.session != sid {
			continue
		}
		var out []event.Event
		for e, err := range l.events(after) {
			if err != nil {
				return nil, err
			}
			if out = append(out, e); len(out) == limit {
				break
			}
		}
		return out, nil
	}
	return nil, badLog("the archive does not have the log of %s, through which the session's timeline goes", sid)
}

// rewrite makes copies of logs with other ids, in files of their own, for a session that is here already: event ids are unique, and each hash is over the
// session's id. What refers to the sessions and checkpoints of the archive refers to the copies'. Texts stay as they are.
func (all stagedLogs) rewrite(ctx context.Context, known []id.Checkpoint) (stagedLogs, map[string]string, error) {
	names := map[string]string{}
	for _, l := range all {
		names[string(l.session)] = string(id.NewSession())
	}
	for _, c := range known {
		names[string(c)] = string(id.NewCheckpoint())
	}
	var pairs []string
	for from, to := range names {
		pairs = append(pairs, from, to)
	}
	r := rewriter{names: strings.NewReplacer(pairs...), events: map[id.Event]id.Event{}}
	var out stagedLogs
	for _, l := range all {
		copied, err := r.log(ctx, l, id.Session(names[string(l.session)]))
		if err != nil {
			return nil, nil, err
		}
		out = append(out, copied)
	}
	return out, names, nil
}

type rewriter struct {
	names  *strings.Replacer
	events map[id.Event]id.Event
}

func (r *rewriter) log(ctx context.Context, from *stagedLog, sid id.Session) (_ *stagedLog, err error) {
	to := &stagedLog{session: sid, file: from.file + ".copy"}
	f, err := os.OpenFile(to.file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, diskError(err, "store a log of the archive")
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriterSize(f, 1<<20)
	var at int64
	for e, err := range from.events(0) {
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
		fresh := id.NewEvent()
		r.events[e.ID] = fresh
		e.ID, e.SessionID = fresh, sid
		if cause, ok := r.events[e.CausationID]; ok {
			e.CausationID = cause
		} else {
			e.CausationID = ""
		}
		if namesOthers(e.Type) {
			e.Data = json.RawMessage(r.names.Replace(string(e.Data)))
		}
		if e.Hash, err = event.Hash(to.head.Hash, e); err != nil {
			return nil, err
		}
		var line bytes.Buffer
		enc := json.NewEncoder(&line)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(e); err != nil {
			return nil, err
		}
		if _, err := out.Write(line.Bytes()); err != nil {
			return nil, diskError(err, "store a log of the archive")
		}
		to.offsets, to.head = append(to.offsets, at), event.Head{Seq: e.Seq, Hash: e.Hash}
		at += int64(line.Len())
	}
	return to, diskError(out.Flush(), "store a log of the archive")
}

// namesOthers says which events name sessions and checkpoints in their data.
func namesOthers(t event.Type) bool {
	for _, domain := range []string{"session.", "checkpoint.", "workspace.", "context."} {
		if strings.HasPrefix(string(t), domain) {
			return true
		}
	}
	return false
}

// hashAt returns the hash of an event of a log.
func (l *stagedLog) hashAt(seq event.Seq) (string, error) {
	if seq < 1 || int(seq) > len(l.offsets) {
		return "", badLog("the log of %s ends before event %d", l.session, seq)
	}
	for e, err := range l.events(seq - 1) {
		return e.Hash, err
	}
	return "", nil
}

// rows returns the logs as a store takes them, from the first that is not here.
func (all stagedLogs) rows(here int) []store.Log {
	var out []store.Log
	for i, l := range all[here:] {
		out = append(out, store.Log{Session: l.session, Events: l.events(0), Buried: here+i < len(all)-1})
	}
	return out
}
