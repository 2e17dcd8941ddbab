// RUN: distir-opt %s -p 'ring-attention{balance=yes}' | filecheck %s
// RUN: distir-opt %s -p 'ring-attention{balance=no}' | filecheck %s --check-prefix=ONE
// RUN: not distir-opt %s -p 'ring-attention{balance=maybe}' 2>&1 | filecheck %s --check-prefix=WHICH

// Of four pieces of the sequence, device 0 has the first and the last, device 1 those between, and all compute as much.

// CHECK:      [[FIRST:%\S+]] = dist.exchange %q dim 0 from [0, 2] over "cp"
// CHECK-NEXT: [[LAST:%\S+]] = dist.exchange %q dim 0 from [6, 4] over "cp"
// CHECK:      "attention.forward"([[FIRST]], {{.*}}) <{scale = 5.000000e-01 : f64, diagonal = -6 : i64}> {dist.by_rank = #dist.by_rank<["cp"], [{diagonal = -6 : i64}, {diagonal = -2 : i64}]>}
// CHECK:      "attention.forward"([[LAST]], {{.*}}) <{scale = 5.000000e-01 : f64, diagonal = 6 : i64}> {dist.by_rank = #dist.by_rank<["cp"], [{diagonal = 6 : i64}, {diagonal = 2 : i64}]>}
// CHECK:      [[WHOLE:%\S+]] = dist.concat
// CHECK-NEXT: dist.exchange [[WHOLE]] dim 0 from [0, 6] over "cp"
// CHECK-NEXT: dist.exchange [[WHOLE]] dim 0 from [4, 2] over "cp"
// ONE-NOT: dist.concat
// WHICH: balance: expected one of auto, yes, no, got 'maybe'

builtin.module attributes {dist.devices = 2 : i64, dist.axes = #dist.axes<["cp" = 2]>} {
dist.mesh @mesh = <["cp" = 2]>
func.func @main(%q: tensor<4x8xf32, #dist.on<0:2>>, %k: tensor<4x8xf32, #dist.on<0:2>>, %v: tensor<4x8xf32, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>> {
  %K = dist.allgather %k dim 0 over "cp" : (tensor<4x8xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %V = dist.allgather %v dim 0 over "cp" : (tensor<4x8xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %o, %s = "attention.forward"(%q, %K, %V) <{scale = 0.5 : f64, diagonal = 0 : i64}> {dist.by_rank = #dist.by_rank<["cp"], [{diagonal = 0 : i64}, {diagonal = 4 : i64}]>} : (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>) -> (tensor<4x8xf32, #dist.on<0:2>>, tensor<4xf32, #dist.on<0:2>>)
  func.return %o : tensor<4x8xf32, #dist.on<0:2>>
}
}
