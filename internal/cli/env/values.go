package env

import (
	"fmt"
	"strconv"
	"strings"
)

// Bytes is a flag's size: a number with K, M, G or T, powers of 1024.
type Bytes int64

// Set reads a size.
func (b *Bytes) Set(s string) error {
	num := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(s), "B"), "I")
	shift := 0
	if n := len(num); n > 0 {
		if i := strings.IndexByte("KMGT", num[n-1]); i >= 0 {
			shift, num = 10*(i+1), num[:n-1]
		}
	}
	n, err := strconv.ParseInt(num, 10, 64)
	if err != nil || n < 0 || n > (1<<62)>>shift {
		return fmt.Errorf("%q is not a size such as 512M or 2G", s)
	}
	*b = Bytes(n << shift)
	return nil
}

// String is empty for 0.
func (b *Bytes) String() string {
	if *b == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*b), 10)
}

// Type is the word for the flag's value in the help.
func (b *Bytes) Type() string { return "size" }

// Size writes a number of bytes for people.
func Size(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	f, i := float64(n)/1024, 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	return fmt.Sprintf("%.1f %cB", f, units[i])
}

// Assignments completes a list of KEY=VALUE: a KEY alone gets its value from the environment, where it may be empty.
func Assignments(e *Env, list []string) ([]string, error) {
	out := make([]string, 0, len(list))
	for _, kv := range list {
		key, _, ok := strings.Cut(kv, "=")
		if key == "" || strings.ContainsAny(key, " \t\r\n\x00") {
			return nil, Usage("%q is not KEY=VALUE", kv)
		}
		if !ok {
			kv += "=" + e.Getenv(kv)
		}
		out = append(out, kv)
	}
	return out, nil
}
