// RUN: DISTIR_ROUNDTRIP
// RUN: distir-opt %s -p expand-ranks | filecheck %s --check-prefix EACH
// RUN: distir-opt %s -p 'expand-ranks,project-to-rank{rank=1}' | filecheck %s --check-prefix RANK

// Devices of a group exchange along an axis; written out, those of each line along it.
// CHECK: "example.ring_exchange"(%x) <{over = "tp"}>
// EACH: "example.ring_exchange"(%x, %x_1)
// EACH-NEXT: "example.ring_exchange"(%x_2, %x_3)
// RANK: rank.exchange %x dim 0 from 0 group [0, 1]
builtin.module attributes {dist.devices = 4 : i64} {
  dist.mesh @mesh = <["dp" = 2, "tp" = 2]>
  func.func @main(%x: tensor<4xf32, #dist.on<0:4>> {dist.name = "x", dist.role = "input"}) -> (tensor<4xf32, #dist.on<0:4>> {dist.name = "y", dist.role = "output"}) {
    %y = "example.ring_exchange"(%x) <{over = "tp"}> : (tensor<4xf32, #dist.on<0:4>>) -> tensor<4xf32, #dist.on<0:4>>
    func.return %y : tensor<4xf32, #dist.on<0:4>>
  }
}
