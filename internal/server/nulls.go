package server

import "reflect"

// withoutNulls returns v with every nil slice that would be written as null replaced by an empty one, so that a client may always loop
// over a list. Slices with omitempty are left out anyway. v itself is not changed.
func withoutNulls(v any) any {
	rv := reflect.ValueOf(v)
	if !rv.IsValid() {
		return v
	}
	if rv.Kind() == reflect.Pointer {
		if rv.IsNil() || rv.Elem().Kind() != reflect.Struct {
			return v
		}
		return fill(rv.Elem()).Addr().Interface()
	}
	if rv.Kind() != reflect.Struct {
		return v
	}
	return fill(rv).Interface()
}

// fill returns an addressable copy of a struct whose nil slices are filled in, at any depth.
func fill(in reflect.Value) reflect.Value {
	out := reflect.New(in.Type()).Elem()
	out.Set(in)
	for i := range in.NumField() {
		if in.Type().Field(i).IsExported() {
			fillField(out.Field(i))
		}
	}
	return out
}

func fillField(f reflect.Value) {
	switch f.Kind() {
	case reflect.Struct:
		if f.Type().PkgPath() != "time" {
			f.Set(fill(f))
		}
	case reflect.Pointer:
		if !f.IsNil() && f.Elem().Kind() == reflect.Struct && f.Elem().Type().PkgPath() != "time" {
			f.Set(fill(f.Elem()).Addr())
		}
	case reflect.Slice:
		switch {
		case f.Type().Elem().Kind() == reflect.Uint8: // raw JSON, not a list
		case f.IsNil():
			f.Set(reflect.MakeSlice(f.Type(), 0, 0))
		case f.Type().Elem().Kind() == reflect.Struct:
			items := reflect.MakeSlice(f.Type(), f.Len(), f.Len())
			for i := range f.Len() {
				items.Index(i).Set(f.Index(i))
				fillField(items.Index(i))
			}
			f.Set(items)
		}
	}
}
