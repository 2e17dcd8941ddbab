// Errors that nothing expects and comments that nothing meets fail.
// RUN: not distir-opt %s --split-input-file --verify-diagnostics 2>&1 | filecheck %s

// CHECK: line 8: unexpected error: no function @f in the module (the comment on line 6 expects it on line 7)
// CHECK: line 6: expected error was not produced: no function @f
// expected-error @+1 {{no function @f}}
func.func @main() {
  dist.call @f() on [0] : () -> ()
  func.return
}

// -----

// CHECK: line 15: expected error was not produced: anything
// expected-error @below {{anything}}
func.func @main() {
  func.return
}

// -----

// CHECK: line 24: unexpected error: no function @g in the module
func.func @main() {
  dist.call @g() on [0] : () -> ()
  func.return
}

// -----

// CHECK: line 33: expected an annotation such as {{.*}}, got: // expected-eror @below
// CHECK: line 35: unexpected error: no function @h in the module
// CHECK-NOT: line
// expected-eror @below {{no function @h}}
func.func @main() {
  dist.call @h() on [0] : () -> ()
  func.return
}
