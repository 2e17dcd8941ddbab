// RUN: distir-opt %s -p example-ring | filecheck %s
// RUN: distir-opt %s -p 'example-ring,project-to-rank{rank=1}' | filecheck %s --check-prefix RANK

// Three sends around a ring are one operation, which each rank does with its neighbours.
// CHECK: [[R:%.*]], [[R1:%.*]], [[R2:%.*]] = "example.ring_exchange"(%a, %b, %c)
// CHECK-NEXT: func.return [[R1]], [[R2]], [[R]]
// RANK: rank.exchange %b dim 0 from 0 group [0, 1, 2] : tensor<4xf32> -> tensor<4xf32>
builtin.module attributes {dist.devices = 3 : i64} {
  func.func @main(%a: tensor<4xf32, #dist.on<0>>, %b: tensor<4xf32, #dist.on<1>>, %c: tensor<4xf32, #dist.on<2>>)
      -> (tensor<4xf32, #dist.on<1>>, tensor<4xf32, #dist.on<2>>, tensor<4xf32, #dist.on<0>>) {
    %0 = dist.send %a to 1 : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<1>>
    %1 = dist.send %b to 2 : tensor<4xf32, #dist.on<1>> -> tensor<4xf32, #dist.on<2>>
    %2 = dist.send %c to 0 : tensor<4xf32, #dist.on<2>> -> tensor<4xf32, #dist.on<0>>
    func.return %0, %1, %2 : tensor<4xf32, #dist.on<1>>, tensor<4xf32, #dist.on<2>>, tensor<4xf32, #dist.on<0>>
  }
}
