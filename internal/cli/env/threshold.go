package env

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Threshold is a flag's time after which something is done: a duration, also in days, or never, or default.
type Threshold struct {
	MS  int64 // -1: never; 0: the daemon's default
	Set bool  // it was given
}

// NewThreshold returns one that was not given.
func NewThreshold(d time.Duration) Threshold { return Threshold{MS: d.Milliseconds()} }

// Duration is the time; 0: never.
func (t Threshold) Duration() time.Duration { return time.Duration(max(t.MS, 0)) * time.Millisecond }

// Given returns the threshold if it was given, else nil.
func (t Threshold) Given() *int64 {
	if !t.Set {
		return nil
	}
	return &t.MS
}

// ParseThreshold reads one.
func ParseThreshold(s string) (Threshold, error) {
	switch s {
	case "never", "0":
		return Threshold{MS: -1, Set: true}, nil
	case "default":
		return Threshold{Set: true}, nil
	}
	var d time.Duration
	var err error
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n float64
		n, err = strconv.ParseFloat(days, 64)
		d = time.Duration(n * float64(24*time.Hour))
	} else {
		d, err = time.ParseDuration(s)
	}
	if err != nil || d < time.Millisecond {
		return Threshold{}, fmt.Errorf("%q is not a time such as 30s, 20m, 2h or 7d, and neither never nor default", s)
	}
	return Threshold{MS: d.Milliseconds(), Set: true}, nil
}

// thresholdValue is a Threshold as a flag takes it.
type thresholdValue struct{ t *Threshold }

// ThresholdVar makes a flag's value of t.
func ThresholdVar(t *Threshold) interface {
	Set(string) error
	String() string
	Type() string
} {
	return thresholdValue{t}
}

func (v thresholdValue) Set(s string) (err error) {
	*v.t, err = ParseThreshold(s)
	return err
}

func (v thresholdValue) Type() string { return "time" }

func (v thresholdValue) String() string {
	switch {
	case v.t != nil && v.t.MS == 0 && v.t.Set:
		return "default"
	case v.t == nil || v.t.MS == 0:
		return ""
	case v.t.MS < 0:
		return "never"
	}
	return ShortTime(v.t.Duration())
}

// ShortTime writes a duration without the zeros of time.Duration.
func ShortTime(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
