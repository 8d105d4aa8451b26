package idle_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/clock/clocktest"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/idle"
)

func TestPolicyNext(t *testing.T) {
	t0 := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	both := idle.Policy{Pause: 2 * time.Minute, Suspend: 30 * time.Minute}
	busy := []idle.Reason{{Source: idle.Model}}
	waits := []idle.Reason{{Source: "approval", MaySleep: true}}
	for _, c := range []struct {
		name   string
		policy idle.Policy
		facts  idle.Facts
		after  time.Duration // since it was last in use
		do     idle.Action
		at     time.Duration // of Wait, since it was last in use; -1: never
	}{
		{"never", idle.Policy{}, idle.Facts{}, 1000 * time.Hour, idle.Wait, -1},
		{"in use", both, idle.Facts{Reasons: busy}, time.Hour, idle.Wait, time.Hour + idle.LookEvery},
		{"just used", both, idle.Facts{}, 0, idle.Wait, idle.LookEvery},
		{"soon", both, idle.Facts{}, 90 * time.Second, idle.Wait, 2 * time.Minute},
		{"pause", both, idle.Facts{}, 2 * time.Minute, idle.Pause, 0},
		{"paused", both, idle.Facts{Paused: true}, 3 * time.Minute, idle.Wait, 30 * time.Minute},
		{"suspend", both, idle.Facts{Paused: true}, 30 * time.Minute, idle.Suspend, 0},
		{"not paused in time", both, idle.Facts{}, 31 * time.Minute, idle.Suspend, 0},
		{"paused for good", idle.Policy{Pause: time.Minute}, idle.Facts{Paused: true}, time.Hour, idle.Wait, -1},
		{"suspend only", idle.Policy{Suspend: time.Hour}, idle.Facts{}, 59*time.Minute + 30*time.Second, idle.Wait, time.Hour},
		{"waits for somebody", both, idle.Facts{Reasons: waits}, 30 * time.Minute, idle.Suspend, 0},
		{"a short threshold in use", idle.Policy{Pause: time.Second}, idle.Facts{Reasons: busy}, 0, idle.Wait, time.Second},
	} {
		c.facts.Active = t0
		got := c.policy.Next(t0.Add(c.after), c.facts)
		want := t0.Add(c.at)
		if c.at < 0 {
			want = time.Time{}
		}
		if got.Do != c.do || c.do == idle.Wait && !got.At.Equal(want) {
			t.Errorf("%s: %+v, want %s at %v", c.name, got, c.do, want)
		}
	}
}

// TestSchedulerLooksWhenDue puts the clock forward and sees who is looked at.
func TestSchedulerLooksWhenDue(t *testing.T) {
	clk := clocktest.New()
	s := idle.NewScheduler(clk)
	var mu sync.Mutex
	looks := map[id.Session]int{}
	looked := make(chan id.Session, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx, 2, func(_ context.Context, sid id.Session) time.Time {
			mu.Lock()
			defer mu.Unlock()
			looks[sid]++
			looked <- sid
			if sid == "again" && looks[sid] == 1 {
				return clk.Now().Add(time.Hour)
			}
			return time.Time{}
		})
	}()
	s.Set("late", clk.Now().Add(3*time.Hour))
	s.Set("again", clk.Now().Add(time.Hour))
	s.Set("dropped", clk.Now().Add(time.Hour))
	s.Set("early", clk.Now().Add(5*time.Hour))
	s.Set("early", clk.Now().Add(30*time.Minute)) // an earlier time wins, a later one does not
	s.Set("again", clk.Now().Add(9*time.Hour))
	s.Drop("dropped")
	next := func(want id.Session) {
		t.Helper()
		select {
		case got := <-looked:
			if got != want {
				t.Fatalf("%s is looked at, want %s", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s is not looked at", want)
		}
	}
	clk.Forward(31 * time.Minute)
	next("early")
	clk.Forward(30 * time.Minute)
	next("again")
	clk.Forward(time.Hour + time.Minute)
	next("again")
	clk.Forward(time.Hour)
	next("late")
	cancel()
	<-done
	if n := s.Len(); n != 0 {
		t.Errorf("%d sessions are in it still", n)
	}
}

func TestMeterSeesAProcessThatComputes(t *testing.T) {
	m := idle.NewMeter(clock.System{})
	var load idle.Load
	deadline := time.Now().Add(30 * time.Second)
	var stop atomic.Bool
	defer stop.Store(true)
	go func() {
		for !stop.Load() {
		}
	}()
	for !load.Computing {
		if time.Now().After(deadline) {
			t.Fatal("a busy loop is not seen")
		}
		load.Note(m.Used([]int{os.Getpid()}))
		time.Sleep(100 * time.Millisecond)
	}
	if load.Since.IsZero() || load.Last.Before(load.Since) {
		t.Errorf("since %v, last %v", load.Since, load.Last)
	}
}

func TestLoad(t *testing.T) {
	var l idle.Load
	t0 := time.Now()
	at := func(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }
	if l.Note(time.Second, at(0)) || l.Note(2*time.Second, at(0.1)) {
		t.Error("something is known from one reading")
	}
	if !l.Note(1100*time.Millisecond, at(10)) || l.Computing {
		t.Error("one percent is computing")
	}
	if !l.Note(4*time.Second, at(20)) || !l.Computing || !l.Since.Equal(at(10)) {
		t.Errorf("%+v", l)
	}
	if !l.Note(9*time.Second, at(30)) || !l.Since.Equal(at(10)) || !l.Last.Equal(at(30)) {
		t.Errorf("%+v", l)
	}
	if !l.Note(9100*time.Millisecond, at(40)) || l.Computing || !l.Last.Equal(at(30)) {
		t.Errorf("%+v", l)
	}
	if l.Note(time.Second, at(50)) {
		t.Error("readings of other processes go together")
	}
}

// BenchmarkSchedulerOfMany says that hot sessions that are not due cost nothing.
func BenchmarkSchedulerOfMany(b *testing.B) {
	clk := clocktest.New()
	s := idle.NewScheduler(clk)
	for i := range 10_000 {
		s.Set(id.Session(fmt.Sprint(i)), clk.Now().Add(time.Hour))
	}
	for b.Loop() {
		s.Set("one", clk.Now().Add(time.Hour))
		s.Drop("one")
	}
}
