// RUN: collopt %s --split-input-file --verify-diagnostics

// The fields of a record have names of their own, and there is at least one.
// expected-error@+1 {{two fields are named 'up'}}
coll.record @twice [#coll.field<"up" : "f32[4]">, #coll.field<"up" : "f32[8]">]

// -----

// A record of nothing would be no value.
// expected-error@+1 {{a record has at least one field}}
coll.record @none []

// -----

// A type that is none in .coll is not written as such.
// expected-error@+1 {{the fields of @wrong cannot be written in .coll: use -t mlir}}
coll.record @wrong [#coll.field<"up" : "f32[[4]">]
