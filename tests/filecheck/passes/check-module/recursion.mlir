// RUN: DISTIR_DIAGNOSTICS

func.func @main() {
  dist.call @f() on [0] : () -> ()
  func.return
}
func.func @f() {
  func.call @g() : () -> ()
  func.return
}
func.func @g() {
  dist.call @f() on [0] : () -> ()
  func.return
}
// CHECK: recursive call: @f -> @g -> @f
